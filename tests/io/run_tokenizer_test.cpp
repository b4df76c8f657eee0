// data.tokenizer: what is read of it, what is refused, and the copy that a run's folder keeps.
#include "src/io/run_tokenizer.h"

#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>

#include "src/core/errors.h"
#include "src/io/files.h"
#include "src/io/sha256.h"
#include "tests/catch.h"
#include "tests/io/faults.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// A tokenizer.json of `size` ids, the last one an added token.
std::string tokenizer_json(int size) {
    json vocab = json::object();
    for (int id = 0; id < size - 1; ++id) vocab[text("t", id)] = id;
    const json added = {{{"id", size - 1}, {"content", "<|end|>"}}};
    return json{{"model", {{"type", "BPE"}, {"vocab", vocab}}}, {"added_tokens", added}}.dump();
}

/// A folder with tokenizer.json of 10 ids, a configuration that names it, and a run's folder.
class Fixture {
  public:
    Fixture() {
        fs::create_directories(scratch.path() / "hf");
        fs::create_directories(run);
        put(file, tokenizer_json(10));
        config.data.tokenizer = file.string();
        config.model.vocab_size = 10;
        config.output.directory = run.string();
    }

    RunTokenizer open(bool resume = false) const { return open_tokenizer(config, resume).value(); }
    void keep() const { keep_tokenizer(open(), run); }

    /// Names in the run's folder and in its copy.
    std::vector<std::string> names(const fs::path& folder) const {
        std::vector<std::string> found;
        for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path().filename().string());
        std::sort(found.begin(), found.end());
        return found;
    }

    ScratchFolder scratch;
    const fs::path file = scratch.path() / "hf/tokenizer.json", run = scratch.path() / "run";
    const fs::path copy = run / "tokenizer/tokenizer.json";
    Config config;
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE_METHOD(Fixture, "a tokenizer is read for its checksum and its vocabulary") {
    const RunTokenizer tokenizer = open();
    CHECK(tokenizer.file == file);
    CHECK(tokenizer.vocab_size == 10);
    CHECK(tokenizer.sha256 == sha256(bytes_of(tokenizer_json(10))));
    CHECK(tokenizer.record() == json{{"file", file.string()}, {"sha256", tokenizer.sha256}});
    put(file, R"({"model": {"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.0]]}})");
    CHECK(open().vocab_size == 2);

    config.data.tokenizer.reset();
    CHECK_FALSE(open_tokenizer(config, false));
}

TEST_CASE_METHOD(Fixture, "a vocabulary beyond the model's is refused by key") {
    config.model.vocab_size = 8;
    CHECK_THROWS_AS(open(), UsageError);
    CHECK_THROWS_WITH(open(), Contains("data.tokenizer") && Contains(file.string()) && Contains("reach to 8") &&
                                  Contains("model.vocab_size is 8"));
    config.model.vocab_size = 9;  // an added token may lie beyond
    CHECK(open().vocab_size == 10);
    config.model.vocab_size = 11;  // padded, as some models have it
    CHECK(open().vocab_size == 10);
}

TEST_CASE_METHOD(Fixture, "what is no tokenizer.json is named") {
    for (const auto& [contents, words] : {std::pair<std::string, std::string>{"", "1:1"},
                                          {"[]", "model.vocab"},
                                          {"{}", "model.vocab"},
                                          {R"({"model": 3})", "model.vocab"},
                                          {R"({"model": {"vocab": 3}})", "model.vocab"},
                                          {R"({"model": {"vocab": {"a": -1}}})", "found -1"},
                                          {R"({"model": {"vocab": {"a": 1e300}}})", "1e+300"},
                                          {R"({"model": {"vocab": {"a": 4294967296}}})", "4294967296"},
                                          {R"({"model": {"vocab": {}}, "added_tokens": {}})", "added_tokens"},
                                          {R"({"model": {"vocab": {}}, "added_tokens": [3]})", "added_tokens"}}) {
        INFO(contents);
        put(file, contents);
        CHECK_THROWS_WITH(open(), Contains("data.tokenizer: ") && Contains(file.string()) && Contains(words) &&
                                      !Contains("json.exception"));
    }
    config.data.tokenizer = file.parent_path().string();
    CHECK_THROWS_WITH(open(), Contains("data.tokenizer") && Contains("not a regular file"));
}

TEST_CASE_METHOD(Fixture, "the run's copy replaces a file that is gone, but only on resume") {
    keep();
    fs::remove(file);
    CHECK_THROWS_WITH(open(false), Contains("data.tokenizer") && Contains(file.string()));
    CHECK(open(true).file == copy);
    fs::remove(copy);
    CHECK_THROWS_WITH(open(true), Contains(file.string()) && Contains(copy.string()));
}

TEST_CASE_METHOD(Fixture, "a checkpoint of another tokenizer is refused") {
    const std::optional<RunTokenizer> now = open_tokenizer(config, true);
    check_tokenizer(now, {{"tokenizer", now->record()}});
    check_tokenizer(now, json::object());
    check_tokenizer(std::nullopt, {{"tokenizer", now->record()}});
    put(file, tokenizer_json(8));
    const json other = open().record();
    CHECK_THROWS_AS(check_tokenizer(now, {{"tokenizer", other}}), UsageError);
    CHECK_THROWS_WITH(check_tokenizer(now, {{"tokenizer", other}}),
                      Contains("data.tokenizer " + file.string()) && Contains(now->sha256) &&
                          Contains(other.at("sha256").get<std::string>()));
}

TEST_CASE_METHOD(Fixture, "the copy has the files that lie next to tokenizer.json") {
    put(file.parent_path() / "tokenizer_config.json", "{\"a\": 1}");
    put(file.parent_path() / "special_tokens_map.json", "{}");
    put(file.parent_path() / "model.safetensors", "no part of it");
    keep();
    CHECK(names(run) == Names{"tokenizer"});
    CHECK(names(run / "tokenizer") == Names{"special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"});
    CHECK(read_file(copy) == tokenizer_json(10));
    CHECK(read_file(run / "tokenizer/tokenizer_config.json") == "{\"a\": 1}");

    // The same tokenizer.json does not change the copy, another one replaces all of it.
    put(file.parent_path() / "tokenizer_config.json", "{\"a\": 2}");
    keep();
    CHECK(read_file(run / "tokenizer/tokenizer_config.json") == "{\"a\": 1}");
    fs::remove(file.parent_path() / "special_tokens_map.json");
    put(file, tokenizer_json(9));
    keep();
    CHECK(names(run) == Names{"tokenizer"});
    CHECK(names(run / "tokenizer") == Names{"tokenizer.json", "tokenizer_config.json"});
    CHECK(read_file(copy) == tokenizer_json(9));
}

TEST_CASE_METHOD(Fixture, "a file of another name is copied without its neighbours, under the usual name") {
    const fs::path named = file.parent_path() / "gpt2_tokenizer.json";
    put(named, tokenizer_json(10));
    put(file.parent_path() / "tokenizer_config.json", "of tokenizer.json");
    config.data.tokenizer = named.string();
    keep();
    CHECK(names(run / "tokenizer") == Names{"tokenizer.json"});
}

TEST_CASE_METHOD(Fixture, "a file that changes between reading and copying is not kept") {
    const RunTokenizer tokenizer = open();
    put(file, tokenizer_json(9));
    CHECK_THROWS_WITH(keep_tokenizer(tokenizer, run), Contains("not copied") && Contains("has changed"));
    CHECK(names(run).empty());
}

TEST_CASE_METHOD(Fixture, "a copy is whole or absent, whichever call fails or kills") {
    put(file.parent_path() / "tokenizer_config.json", "{}");
    const RunTokenizer tokenizer = open();
    put(file, tokenizer_json(8));
    const RunTokenizer earlier = open();
    const bool exchange = GENERATE(true, false);
    const auto is_whole = [&](bool may_be_absent) {
        if (!fs::exists(run / "tokenizer")) return may_be_absent;
        const std::string now = read_file(copy);
        return names(run / "tokenizer") == Names{"tokenizer.json", "tokenizer_config.json"} &&
               (now == tokenizer_json(10) || now == tokenizer_json(8));
    };
    const auto start_again = [&] {
        fs::remove_all(run / "tokenizer");
        put(file, tokenizer_json(8));
        keep_tokenizer(earlier, run);
        put(file, tokenizer_json(10));
    };
    bool failed = true;
    for (std::int64_t call = 0; failed; ++call) {
        INFO("call " << call << (exchange ? "" : " without exchange"));
        REQUIRE(call < 40);
        start_again();
        failed = false;
        {
            Faults faults;
            if (!exchange) faults.no_exchange();
            faults.fail_at(call, ENOSPC);
            try {
                keep_tokenizer(tokenizer, run);
            } catch (const Error& error) {
                failed = true;
                CHECK_THAT(error.what(), Contains("not copied to " + (run / "tokenizer").string()) &&
                                             Contains("No space left on device"));
            }
        }
        CHECK(is_whole(false));

        start_again();
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            Faults faults;
            if (!exchange) faults.no_exchange();
            faults.kill_at(call);
            keep_tokenizer(tokenizer, run);
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(is_whole(!exchange));      // between two renames there is none
        keep_tokenizer(tokenizer, run);  // the next run cleans up
        CHECK(names(run) == Names{"tokenizer"});
        CHECK(read_file(copy) == tokenizer_json(10));
    }
}
