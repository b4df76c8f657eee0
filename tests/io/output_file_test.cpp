#include "src/io/output_file.h"

#include <sys/stat.h>

#include <vector>

#include "src/io/files.h"
#include "tests/catch.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

std::string refusal(const fs::path& path, bool overwrite, const InputFiles& inputs = {}) {
    return message_of([&] { require_output_file("--out", path, overwrite, inputs); });
}

}  // namespace

TEST_CASE("an output is a new file, or a regular one that may be replaced") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path(), file = folder / "file";
    CHECK(refusal(file, false).empty());
    CHECK(refusal(file, true).empty());
    put(file, "kept");
    CHECK_THAT(refusal(file, false),
               Contains("--out " + file.string()) && Contains("exists") && Contains("--overwrite"));
    CHECK(refusal(file, true).empty());
    CHECK(read_file(file) == "kept");
}

TEST_CASE("what is no regular file is never an output") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    put(folder / "target", "kept");
    fs::create_symlink(folder / "target", folder / "link");
    fs::create_symlink(folder / "nowhere", folder / "dangling");
    for (const bool overwrite : {false, true}) {
        CHECK_THAT(refusal("/dev/null", overwrite), Contains("is a device"));
        CHECK_THAT(refusal(folder / "pipe", overwrite), Contains("is a FIFO"));
        CHECK_THAT(refusal(folder, overwrite), Contains("is a folder"));
        CHECK_THAT(refusal(folder.string() + "/", overwrite), Contains("is a folder"));
        CHECK_THAT(refusal(folder / "link", overwrite), Contains("is a symbolic link"));
        CHECK_THAT(refusal(folder / "dangling", overwrite), Contains("is a symbolic link"));
        CHECK_THAT(refusal(folder / "no" / "file", overwrite), Contains("there is no folder"));
    }
}

TEST_CASE("an input is never an output, by whatever name") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path(), data = folder / "data";
    fs::create_directory(folder / "model");
    put(data, "kept");
    put(folder / "model" / "weights", "kept");
    put(folder / "other", "");
    fs::create_hard_link(data, folder / "hard");
    fs::create_symlink(data, folder / "soft");
    fs::create_directory_symlink(folder / "model", folder / "alias");
    InputFiles inputs;
    inputs.add(folder / "soft");  // an input that is a link is the file that it leads to
    inputs.add(folder / "absent");
    inputs.add_folder(folder / "model");
    inputs.add_folder(folder / "absent");
    for (const fs::path& path : {data, folder / "hard", folder / "soft", folder / "." / "data",
                                 folder / "model" / "weights", folder / "alias" / "weights"}) {
        CAPTURE(path.string());
        CHECK_THAT(refusal(path, true, inputs), Contains("the run reads this file"));
    }
    CHECK(refusal(folder / "other", true, inputs).empty());
}

TEST_CASE("the name under which an output is first written is free too") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path(), data = folder / "t.new";
    put(data, "kept");
    CHECK_THAT(refusal(folder / "t", false), Contains("t.new, which: exists"));
    CHECK(refusal(folder / "t", true).empty());
    InputFiles inputs;
    inputs.add(data);
    CHECK_THAT(refusal(folder / "t", true, inputs), Contains("the run reads this file"));
}

TEST_CASE("two outputs are two files, also while they are written") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    fs::create_directory_symlink(folder, folder / "alias");
    const auto clash = [&](const fs::path& one, const fs::path& other) {
        return message_of([&] { require_different_outputs({{"--one", one}, {"--other", other}}); });
    };
    CHECK(clash(folder / "a", folder / "b").empty());
    CHECK_THAT(clash(folder / "a", folder / "a"), Contains("--one") && Contains("--other"));
    CHECK_FALSE(clash(folder / "a", folder / "alias" / "." / "a").empty());
    CHECK_FALSE(clash(folder / "a", folder / "a.new").empty());
    CHECK_FALSE(clash(folder / "a.new", folder / "a").empty());
}
