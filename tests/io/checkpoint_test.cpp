#include "src/io/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/io/checksum.h"
#include "src/io/files.h"
#include "tests/catch.h"
#include "tests/io/faults.h"
#include "tests/io/test_checkpoints.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// The step of the newest checkpoint, -1 when none can be read, and what was said about the skipped ones.
std::pair<std::int64_t, std::string> newest_and_messages(const fs::path& run) {
    std::string messages;
    try {
        const auto info = newest_checkpoint(run, [&](const std::string& message) { messages += message + "\n"; });
        return {info ? info->step : -1, messages};
    } catch (const Error&) {
        return {-1, messages};
    }
}

}  // namespace

TEST_CASE("a checkpoint is read as it was written") {
    const ScratchFolder scratch;
    CHECK_FALSE(newest(scratch.path()));
    save(scratch.path(), 7);
    const auto info = newest(scratch.path());
    REQUIRE(info);
    CHECK(info->step == 7);
    CHECK(info->folder == step_folder(scratch.path(), 7));
    check_contents(*info);
    CHECK(names_in(info->folder) == std::vector<std::string>{"complete", "meta.json", "moments.bin", "weights.bin"});

    std::vector<std::byte> out(kSmall - 1);
    CHECK_THROWS_WITH(read_segment(*info, "weights", out), Contains("weights") && Contains("1000") && Contains("999"));
    CHECK_THROWS_WITH(read_segment(*info, "scales", out), Contains("step_00000007") && Contains("no segment 'scales'"));
}

TEST_CASE("doubles of the state come back bit by bit") {
    const ScratchFolder scratch;
    const std::vector<double> values{0.1, 1.0 / 3, 5e-324, std::numeric_limits<double>::max(), -0.0};
    write_checkpoint(scratch.path(), 1, {{"values", values}}, {}, 1);
    const auto back = newest(scratch.path())->state.at("values").get<std::vector<double>>();
    for (std::size_t i = 0; i < values.size(); ++i)
        CHECK(std::bit_cast<std::uint64_t>(back[i]) == std::bit_cast<std::uint64_t>(values[i]));
}

TEST_CASE("a segment from a source is written and read in parts") {
    const ScratchFolder scratch;
    const auto whole = contents_of(3, 0, static_cast<std::size_t>(kCheckpointChunk) + 12345);
    std::vector<std::int64_t> offsets;
    const Segment segment("weights", static_cast<std::int64_t>(whole.size()),
                          [&](std::int64_t offset, std::span<std::byte> into) {
                              offsets.push_back(offset);
                              std::copy_n(whole.begin() + offset, into.size(), into.begin());
                          });
    write_checkpoint(scratch.path(), 3, json::object(), std::span(&segment, 1), 1);
    CHECK(offsets == std::vector<std::int64_t>{0, kCheckpointChunk});

    std::vector<std::byte> back(whole.size());
    const auto info = newest(scratch.path());
    REQUIRE(info);
    read_segment(*info, "weights", back);
    CHECK(back == whole);
}

TEST_CASE("only the newest checkpoints are kept") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path() / "checkpoints";
    for (int step = 1; step <= 5; ++step) save(scratch.path(), step, 2);
    CHECK(names_in(folder) == std::vector<std::string>{"step_00000004", "step_00000005"});
    for (int step = 6; step <= 8; ++step) save(scratch.path(), step, 0);
    CHECK(names_in(folder).size() == 5);
}

TEST_CASE("keep-N counts neither damaged nor later checkpoints, and deletes neither") {
    const ScratchFolder scratch;
    for (const int step : {1, 2, 3, 9}) save(scratch.path(), step, 0);
    fs::remove(step_folder(scratch.path(), 3) / "weights.bin");
    save(scratch.path(), 4, 2);
    CHECK(names_in(scratch.path() / "checkpoints") ==
          std::vector<std::string>{"step_00000002", "step_00000003", "step_00000004", "step_00000009"});
}

TEST_CASE("a checkpoint that is read stays, and goes when the next one is written") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path() / "checkpoints";
    save(scratch.path(), 1, 1);
    auto reader = newest(scratch.path());
    REQUIRE(reader);
    for (const int step : {2, 3}) save(scratch.path(), step, 1);
    CHECK(names_in(folder) == std::vector<std::string>{"step_00000001", "step_00000003"});
    check_contents(*reader);
    const auto other = newest(scratch.path());
    CHECK(other->step == 3);
    reader.reset();
    save(scratch.path(), 4, 1);
    CHECK(names_in(folder) == std::vector<std::string>{"step_00000003", "step_00000004"});
}

TEST_CASE("a checkpoint that its run deletes before it is opened is not reported") {
    const ScratchFolder scratch;
    for (const std::int64_t step : {1, 2, 3, 4}) save(scratch.path(), step, 4);
    fs::remove(step_folder(scratch.path(), 4) / "complete");
    // What is said of the fourth is the moment at which the third goes.
    std::string messages;
    const auto info = newest_checkpoint(scratch.path(), [&](const std::string& message) {
        messages += message + "\n";
        fs::remove_all(step_folder(scratch.path(), 3));
    });
    REQUIRE(info);
    CHECK(info->step == 2);
    CHECK_THAT(messages, Contains("step_00000004") && !Contains("step_00000003"));
    // A link that leads nowhere is not gone.
    fs::create_directory_symlink("nowhere", step_folder(scratch.path(), 5));
    CHECK_THAT(newest_and_messages(scratch.path()).second, Contains("skipped checkpoint") && Contains("step_00000005"));
}

TEST_CASE("when every checkpoint is damaged, that is an error and no new beginning") {
    const ScratchFolder scratch;
    CHECK_FALSE(newest(scratch.path()));
    fs::create_directories(scratch.path() / "checkpoints/.tmp-step_00000001");
    CHECK_FALSE(newest(scratch.path()));
    for (const int step : {1, 2}) save(scratch.path(), step, 0);
    for (const int step : {1, 2}) fs::resize_file(step_folder(scratch.path(), step) / "weights.bin", 3);
    CHECK_THROWS_WITH(newest(scratch.path()), Contains("none of the 2 checkpoints") && Contains("can be read"));
    CHECK(names_in(scratch.path() / "checkpoints").size() == 2);
}

TEST_CASE("steps are compared as numbers") {
    const ScratchFolder scratch;
    save(scratch.path(), 99999999);
    save(scratch.path(), 100000000);
    CHECK(newest(scratch.path())->step == 100000000);
}

TEST_CASE("a checkpoint of the same step is replaced, also where folders cannot be exchanged") {
    for (const bool exchange : {true, false}) {
        const ScratchFolder scratch;
        save(scratch.path(), 2);
        fs::resize_file(step_folder(scratch.path(), 2) / "weights.bin", 3);
        Faults faults;
        if (!exchange) faults.no_exchange();
        save(scratch.path(), 2);
        CHECK(names_in(scratch.path() / "checkpoints") == std::vector<std::string>{"step_00000002"});
        const auto info = newest(scratch.path());
        REQUIRE(info);
        check_contents(*info);
    }
}

TEST_CASE("torn, damaged and foreign checkpoints are skipped with the reason") {
    const ScratchFolder scratch;
    const fs::path run = scratch.path();
    for (int step = 1; step <= 3; ++step) save(run, step, 0);
    const fs::path last = step_folder(run, 3);
    const auto skipped = [&](const std::string& reason) {
        const auto [step, messages] = newest_and_messages(run);
        CHECK(step == 2);
        CHECK_THAT(messages, Contains("step_00000003") && Contains(reason));
    };
    const auto flip = [](const fs::path& file, std::size_t at) {
        std::string contents = read_file(file);
        contents.at(at) ^= 1;
        put(file, contents);
    };
    SECTION("no marker") {
        fs::remove(last / "complete");
        skipped("complete: No such file");
    }
    SECTION("no meta.json") {
        fs::remove(last / "meta.json");
        skipped("meta.json: No such file");
    }
    SECTION("changed meta.json") {
        flip(last / "meta.json", 40);
        skipped("meta.json is not the one");
    }
    SECTION("empty marker") {
        put(last / "complete", "");
        skipped("meta.json is not the one");
    }
    SECTION("missing segment") {
        fs::remove(last / "moments.bin");
        skipped("moments.bin: No such file");
    }
    SECTION("cut segment") {
        fs::resize_file(last / "weights.bin", 999);
        skipped("weights.bin has 999 bytes where 1000 are expected");
    }
    SECTION("one flipped bit") {
        flip(last / "weights.bin", 777);
        skipped("weights.bin is damaged");
    }
    SECTION("of another step") {
        fs::remove_all(last);
        fs::copy(step_folder(run, 1), last);
        skipped("holds the checkpoint of step 1");
    }
    SECTION("an empty folder") {
        fs::remove_all(last);
        fs::create_directory(last);
        skipped("No such file");
    }
    SECTION("a file") {
        fs::remove_all(last);
        put(last, "?");
        skipped("Not a directory");
    }
    SECTION("all of them") {
        for (int step = 1; step <= 3; ++step) fs::remove(step_folder(run, step) / "complete");
        CHECK(newest_and_messages(run).first == -1);
    }
    SECTION("names that are no checkpoint's") {
        for (const char* name : {"step_3", "step_000000004", "step_-0000001", "best", ".tmp-step_00000009"})
            fs::create_directory(run / "checkpoints" / name);
        std::ofstream(scratch.path() / "checkpoints/.tmp-step_00000009/m.bin") << "half";
        fs::create_directories(scratch.path() / "checkpoints/.tmp-step_00000010");  // as a writer that has just begun
        const auto [step, messages] = newest_and_messages(run);
        CHECK(step == 3);
        CHECK(std::count(messages.begin(), messages.end(), '\n') == 5);
        CHECK_THAT(messages, Contains("best: not a checkpoint's name") && Contains("interrupted write"));
    }
}

TEST_CASE("a checkpoint of another program or version is skipped with the reason") {
    const ScratchFolder scratch;
    const auto foreign = [&](const char* key, const json& value) {
        save(scratch.path(), 1);
        const fs::path folder = step_folder(scratch.path(), 1);
        json meta = json::parse(read_file(folder / "meta.json"));
        meta[key] = value;
        // A writer other than this one, which completed its own meta.json.
        put(folder / "meta.json", meta.dump());
        std::string marker(16, '0');
        std::snprintf(marker.data(), 17, "%016llx",
                      static_cast<unsigned long long>(xxh64(bytes_of(read_file(folder / "meta.json")))));
        put(folder / "complete", marker + "\n");
        return newest_and_messages(scratch.path()).second;
    };
    CHECK_THAT(foreign("format", "other"), Contains("its format is \"other\""));
    CHECK(foreign("version", 1).empty());  // which earlier programs wrote
    CHECK_THAT(foreign("version", 3), Contains("its version is 3; this program reads 1 to 2"));
    CHECK_THAT(foreign("segments", 3), Contains("meta.json cannot be read"));
    CHECK_THAT(foreign("step", "one"), Contains("meta.json cannot be read"));
    CHECK_THAT(foreign("segments", json::array({{{"name", "a"}, {"bytes", 1}, {"xxh64", "xyz"}}})),
               Contains("'xyz' is not a checksum"));
}

TEST_CASE("what cannot be a checkpoint is refused before anything is written") {
    const ScratchFolder scratch;
    const std::vector<Segment> twice{{"a", {}}, {"a", {}}};
    CHECK_THROWS_WITH(write_checkpoint(scratch.path(), 1, {}, twice, 1), Contains("'a' is given twice"));
    for (const char* name : {"", "a/b", "a b"}) {
        const Segment segment(name, std::span<const std::byte>());
        CHECK_THROWS_WITH(write_checkpoint(scratch.path(), 1, {}, std::span(&segment, 1), 1), Contains("cannot name"));
    }
    CHECK_THROWS_AS(write_checkpoint(scratch.path(), -1, {}, {}, 1), Error);
    CHECK(names_in(scratch.path()).empty());
}
