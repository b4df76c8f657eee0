#include "src/io/checkpoint.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <limits>
#include <thread>
#include <utility>

#include "src/io/checksum.h"
#include "src/io/files.h"
#include "tests/catch.h"
#include "tests/io/faults.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// Contents that tell steps, segments and places apart.
std::vector<std::byte> contents_of(std::int64_t step, std::size_t segment, std::size_t bytes) {
    std::vector<std::byte> contents(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        contents[i] = static_cast<std::byte>(static_cast<std::size_t>(step) * 31 + segment * 7 + i * 13 + i / 251);
    return contents;
}

constexpr std::size_t kSmall = 1000;

void save(const fs::path& run, std::int64_t step, std::int64_t keep = 3, std::size_t bytes = kSmall) {
    const auto weights = contents_of(step, 0, bytes);
    const auto moments = contents_of(step, 1, bytes / 2);
    const std::vector<Segment> segments{{"weights", weights}, {"moments", moments}};
    write_checkpoint(run, step, {{"sequences", step * 8}, {"loss", 1.0 / static_cast<double>(step + 1)}}, segments,
                     keep);
}

/// Checks that the checkpoint is the one that save() wrote.
void check_contents(const CheckpointInfo& info, std::size_t bytes = kSmall) {
    INFO(info.folder);
    CHECK(info.state.at("sequences") == info.step * 8);
    CHECK(info.state.at("loss").get<double>() == 1.0 / static_cast<double>(info.step + 1));
    std::vector<std::byte> weights(bytes), moments(bytes / 2);
    read_segment(info, "weights", weights);
    read_segment(info, "moments", moments);
    CHECK(weights == contents_of(info.step, 0, bytes));
    CHECK(moments == contents_of(info.step, 1, bytes / 2));
}

fs::path step_folder(const fs::path& run, int step) { return run / "checkpoints" / text("step_0000000", step); }

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

std::optional<CheckpointInfo> newest(const fs::path& run) {
    return newest_checkpoint(run, [](const std::string&) {});
}

/// The step of the newest checkpoint, -1 for none, and what was said about the skipped ones.
std::pair<std::int64_t, std::string> newest_and_messages(const fs::path& run) {
    std::string messages;
    const auto info = newest_checkpoint(run, [&](const std::string& message) { messages += message + "\n"; });
    return {info ? info->step : -1, messages};
}

/// Runs `body` in a child process, which it may kill; returns whether it was killed.
template <class Body>
bool killed(const Body& body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        body();
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status);
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
    CHECK_THAT(foreign("version", 2), Contains("its version is 2"));
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

TEST_CASE("everything is durable before the checkpoint gets its name, and that before an old one goes") {
    const ScratchFolder scratch;
    save(scratch.path(), 1);
    Faults faults;
    save(scratch.path(), 2, 1);
    const std::string folder = (scratch.path() / "checkpoints").string();
    const std::string aside = folder + "/.tmp-step_00000002";
    const auto at = [&](const std::string& call) {
        const auto found = std::find(faults.calls().begin(), faults.calls().end(), call);
        INFO(call);
        CHECK(found != faults.calls().end());
        return found;
    };
    const auto published = at("rename " + aside + " " + folder + "/step_00000002");
    for (const char* name : {"weights.bin", "moments.bin", "meta.json", "complete"}) {
        const auto synced = at("sync " + aside + "/" + name);
        CHECK(at("write " + aside + "/" + name) < synced);
        CHECK(synced <= at("sync " + aside + "/complete"));
    }
    CHECK(at("sync " + aside + "/complete") < at("sync " + aside));
    CHECK(at("sync " + aside) < published);
    const auto named = std::find(published, faults.calls().end(), "sync " + folder);
    CHECK(named < at("rename " + folder + "/step_00000001 " + folder + "/.tmp-deleted-step_00000001"));
}

TEST_CASE("whichever call fails, the earlier checkpoints stay and no part of the new one does") {
    for (const bool exchange : {true, false}) {
        bool failed = true;
        for (int call = 0; failed; ++call) {
            INFO("exchange " << exchange << " call " << call);
            const ScratchFolder scratch;
            save(scratch.path(), 1);
            save(scratch.path(), 2);
            {
                Faults faults;
                faults.fail_at(call, ENOSPC);
                if (!exchange) faults.no_exchange();
                try {
                    save(scratch.path(), exchange ? 3 : 2, 1);
                    failed = false;
                } catch (const Error& error) {
                    CHECK_THAT(error.what(), Contains("No space left on device") && Contains("checkpoints"));
                }
            }
            for (const std::string& name : names_in(scratch.path() / "checkpoints"))
                if (name != ".tmp-replaced-step_00000002")  // the earlier one, which the next write deletes
                    check_contents(open_checkpoint(scratch.path() / "checkpoints" / name));
            REQUIRE(newest(scratch.path()));
            CHECK(newest(scratch.path())->step >= 2);
            REQUIRE(call < 60);
        }
    }
}

TEST_CASE("a full disk is an error that names the file") {
    const ScratchFolder scratch;
    save(scratch.path(), 1);
    const bool was_killed = killed([&] {
        const rlimit limit{5000, 5000};
        ::signal(SIGXFSZ, SIG_IGN);
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(0);
        try {
            save(scratch.path(), 2, 1, 6000);
        } catch (const Error& error) {
            const std::string message = error.what();
            if (message.find("checkpoint of step 2 was not written") == std::string::npos) ::_exit(0);
            if (message.find("weights.bin: File too large") == std::string::npos) ::_exit(0);
            ::kill(::getpid(), SIGKILL);  // the sign of success
        }
    });
    CHECK(was_killed);
    CHECK(names_in(scratch.path() / "checkpoints") == std::vector<std::string>{"step_00000001"});
    check_contents(*newest(scratch.path()));
}

TEST_CASE("an output folder that cannot be one is an error that names it") {
    const ScratchFolder scratch;
    put(scratch.path() / "file", "");
    CHECK_THROWS_WITH(save(scratch.path() / "file", 1), Contains("checkpoint of step 1") && Contains("file"));
    CHECK_FALSE(newest(scratch.path() / "file"));
}

TEST_CASE("killed at whichever call, the newest checkpoint is whole and the next write cleans up") {
    for (const bool same_step : {false, true}) {
        bool was_killed = true;
        for (int call = 0; was_killed; ++call) {
            INFO("same step " << same_step << " call " << call);
            const ScratchFolder scratch;
            save(scratch.path(), 1);
            save(scratch.path(), 2);
            was_killed = killed([&] {
                Faults faults;
                faults.kill_at(call);
                save(scratch.path(), same_step ? 2 : 3, 2);
            });
            const auto info = newest(scratch.path());
            REQUIRE(info);
            CHECK((info->step == 2 || info->step == 3));
            check_contents(*info);
            save(scratch.path(), 4, 2);
            for (const std::string& name : names_in(scratch.path() / "checkpoints"))
                check_contents(open_checkpoint(scratch.path() / "checkpoints" / name));
            CHECK(names_in(scratch.path() / "checkpoints").size() == 2);
            REQUIRE(call < 60);
        }
    }
}

TEST_CASE("killed at any moment, the newest checkpoint is whole") {
    const ScratchFolder scratch;
    constexpr std::size_t bytes = 400000;
    save(scratch.path(), 0, 2, bytes);
    std::uint32_t random = 12345;
    std::int64_t last = 0;
    for (int trial = 0; trial < 60; ++trial) {
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            for (std::int64_t step = last + 1;; ++step) save(scratch.path(), step, 2, bytes);
        }
        random = random * 1664525u + 1013904223u;
        std::this_thread::sleep_for(std::chrono::microseconds(random >> 18));  // up to 16 ms
        REQUIRE(::kill(child, SIGKILL) == 0);
        REQUIRE(::waitpid(child, nullptr, 0) == child);
        const auto info = newest(scratch.path());
        REQUIRE(info);
        CHECK(info->step >= last);
        check_contents(*info, bytes);
        last = info->step;
    }
    CHECK(last > 0);
}
