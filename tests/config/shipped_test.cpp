// What ships with the program: configurations by their bare name, and the command that makes missing data.
#include "src/config/shipped.h"

#include "src/config/command_line.h"
#include "src/config/json_file.h"
#include "tests/catch.h"
#include "tests/config/cases.h"

using coda::data_command;
using coda::find_config;
using coda::UsageError;
using coda::test::lacking;
using coda::test::message_of;
using coda::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

/// Two share folders, of which the second has configurations and a data script; the current folder is an empty one.
class Shares {
  public:
    Shares() {
        for (const char* folder : {"here", "installed/configs", "installed/data"}) {
            fs::create_directories(fs::path(folder_.path()) / folder);
        }
        folder_.write("installed/configs/big.json", "{}");
        folder_.write("installed/configs/small.json", "{}");
        folder_.write("installed/configs/notes.txt", "");
        const std::string script = folder_.write("installed/data/corpus.py", "#!/usr/bin/env python3\n");
        fs::permissions(script, fs::perms::owner_exec, fs::perm_options::add);
        folder_.write("installed/data/module.py", "");
        fs::current_path(path("here"));
    }
    ~Shares() { fs::current_path(before_); }

    std::string path(const std::string& name) const { return (fs::path(folder_.path()) / name).string(); }
    std::string find(const std::string& name) const { return find_config(name, places); }
    std::string command(const std::string& pattern, std::int64_t vocab_size = 300) const {
        return data_command(pattern, std::nullopt, vocab_size, places);
    }

  protected:
    TemporaryFolder folder_;

  private:
    fs::path before_ = fs::current_path();

  public:
    const std::vector<fs::path> places = {path("absent"), path("installed")};
};

}  // namespace

TEST_CASE_METHOD(Shares, "a bare name is a file here, else a shipped configuration") {
    CHECK(find("small.json") == path("installed/configs/small.json"));
    folder_.write("here/small.json", "{}");
    CHECK(find("small.json") == "small.json");
}

TEST_CASE_METHOD(Shares, "a name with a slash is only that path") {
    CHECK(find("./small.json") == "./small.json");
    CHECK(find("configs/small.json") == "configs/small.json");
}

TEST_CASE_METHOD(Shares, "an unknown bare name is answered with the places and what is shipped") {
    const std::string error = message_of<UsageError>([&] { find("smal.json"); });
    CHECK(lacking(error, {"--config smal.json", path("here"), path("absent/configs"), path("installed/configs"),
                          "shipped are big.json, small.json"}) == "");
    CHECK(error.find("notes.txt") == std::string::npos);
    const std::string nothing = message_of<UsageError>([&] { find_config("x.json", {path("absent")}); });
    CHECK(lacking(nothing, {path("absent/configs"), "no configuration is shipped there"}) == "");
}

TEST_CASE_METHOD(Shares, "missing data of a script's folder has the command that makes it") {
    const std::string script = path("installed/data/corpus.py");
    CHECK(command("data/corpus/text.txt") == script);
    CHECK(command("data/corpus/train_*.bin") == script + " --tokenizer FILE");
    CHECK(command("data/corpus/train_*.bin", 128256) == script + " --tokenizer llama3");
    CHECK(command("./data/corpus/train_*.bin", 50257) == script + " --tokenizer gpt2");
    CHECK(data_command("data/corpus/a.bin", "my tokenizer.json", 128256, places) ==
          script + " --tokenizer 'my tokenizer.json'");
    CHECK(command("/big disk/corpus/text.txt") == script + " --folder '/big disk/corpus'");
    fs::current_path(path("installed"));
    CHECK(command("data/corpus/text.txt") == "data/corpus.py");

    for (const char* other : {"data/unknown/a.bin", "data/module/a.bin", "a.bin", "/a.bin", "", "data/corpus.bin"}) {
        INFO(other);
        CHECK(command(other) == "");
    }
}

TEST_CASE("this build's own share folder has the shipped configurations and scripts") {
    CHECK(fs::equivalent(find_config("llama1b.json"), coda::test::configs_folder() / "llama1b.json"));
    CHECK(lacking(data_command("data/tinystories/train_*.bin", {}, 50257), {"data/tinystories.py --tokenizer gpt2"}) ==
          "");
    const char* const argv[] = {"coda_train", "--config", "llama1b.json", "--print-config"};
    const coda::CommandLine line = coda::parse_command_line(4, argv);
    CHECK(line.config.output.directory == "runs/llama1b");
    CHECK(line.config.model.hidden_size == 2048);
}
