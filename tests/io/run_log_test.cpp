#include "src/io/run_log.h"

#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cerrno>
#include <cmath>
#include <limits>

#include "kernels/math/random.h"
#include "tests/catch.h"
#include "tests/io/faults.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const RunHeader kHeader{{{"training", {{"steps", 10}}}}, "CPU", "abc123", {"coda_train", "--config", "c.json"}};

StepRecord record_of(std::int64_t step) {
    return {.step = step, .loss = 5.0 / static_cast<double>(step), .grad_norm = 0.5, .lr = 3e-4, .tokens = step * 512};
}

/// A log of steps 1..10 with a validation after every fifth step.
void put_log(const fs::path& path) {
    RunLog log = RunLog::create(path, kHeader);
    for (int step = 1; step <= 10; ++step) {
        log.write(record_of(step));
        if (step % 5 == 0) log.write_validation(step, 2.0 + step);
    }
}

std::vector<json> lines_of(const fs::path& path) {
    std::vector<json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
}

json without_time(json header) {
    header.erase("started");
    return header;
}

/// What repair_run_log says of `path` for a run that continues after `step`.
std::string repair(const fs::path& path, std::int64_t step) {
    std::string said;
    repair_run_log(path, step, [&](const std::string& notice) { said += notice; });
    return said;
}

/// The first `count` lines of `contents`.
std::string first_lines(const std::string& contents, int count) {
    std::size_t end = 0;
    for (int line = 0; line < count; ++line) end = contents.find('\n', end) + 1;
    return contents.substr(0, end);
}

}  // namespace

TEST_CASE("numbers have nine digits, and what is not finite is null") {
    CHECK(json_number(0.1) == "0.1");
    CHECK(json_number(3) == "3");
    CHECK(json_number(1.0 / 3) == "0.333333333");
    CHECK(json_number(1e-5) == "1e-05");
    CHECK(json_number(-1234567890123.0) == "-1.23456789e+12");
    CHECK(json_number(std::nan("")) == "null");
    CHECK(json_number(std::numeric_limits<double>::infinity()) == "null");
    CHECK(json_number(-std::numeric_limits<double>::infinity()) == "null");
}

TEST_CASE("every finite float comes back from its digits") {
    for (std::uint64_t i = 0; i < 20000; ++i) {
        const auto value = std::bit_cast<float>(philox(1, 2, i).word[0]);
        if (!std::isfinite(value)) continue;
        const auto back = static_cast<float>(json::parse(json_number(value)).get<double>());
        REQUIRE(std::bit_cast<std::uint32_t>(back) == std::bit_cast<std::uint32_t>(value));
    }
}

TEST_CASE("the log is a header and one record a line") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    {
        RunLog log = RunLog::create(path, kHeader);
        log.write({.step = 1,
                   .loss = 4.5,
                   .grad_norm = std::nan(""),
                   .lr = 3e-4,
                   .tokens = 5000000000,
                   .ms = 12.25,
                   .tokens_per_s = 41000,
                   .mfu = 0.5,
                   .memory_gib = 1.5});
        log.write_validation(1, 2.25);
        log.write({.step = 2, .loss_z = 1.25, .norm_z = -0.5, .skipped = "spike"});
    }
    const auto lines = lines_of(path);
    REQUIRE(lines.size() == 4);
    CHECK(lines[0].at("started").get<std::string>().size() == std::string("2026-05-04T12:00:00Z").size());
    CHECK(without_time(lines[0]) == json{{"config", {{"training", {{"steps", 10}}}}},
                                         {"device", "CPU"},
                                         {"build", "abc123"},
                                         {"command", {"coda_train", "--config", "c.json"}}});
    CHECK(lines[1] == json{{"step", 1},
                           {"loss", 4.5},
                           {"grad_norm", nullptr},
                           {"lr", 3e-4},
                           {"tokens", 5000000000},
                           {"ms", 12.25},
                           {"tokens_per_s", 41000.0},
                           {"mfu", 0.5},
                           {"memory_gib", 1.5},
                           {"loss_z", nullptr},
                           {"norm_z", nullptr}});
    CHECK(lines[2] == json{{"step", 1}, {"val_loss", 2.25}});
    CHECK(lines[3]["loss_z"] == 1.25);
    CHECK(lines[3]["norm_z"] == -0.5);
    CHECK(lines[3]["skipped"] == "spike");

    RunLog::create(path, {{}, "CPU", "b", {"\xff"}});  // not UTF-8
    CHECK(lines_of(path).size() == 1);
}

TEST_CASE("a sample in the log is text, or only tokens, and goes with its step") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    {
        RunLog log = RunLog::create(path, kHeader);
        log.write_sample({.step = 4, .prompt = "a\n", .text = "b \"c\xff\xc3\xbc", .tokens = {7, 0}});
        log.write_sample({.step = 5, .prompt = std::nullopt, .text = std::nullopt, .tokens = {}});
    }
    const auto lines = lines_of(path);
    REQUIRE(lines.size() == 3);
    CHECK(lines[1] == json{{"step", 4},
                           {"sample", "b \"c\xef\xbf\xbd\xc3\xbc"},  // U+FFFD for the byte that is no UTF-8
                           {"prompt", "a\n"},
                           {"tokens", {7, 0}}});
    CHECK(lines[2] == json{{"step", 5}, {"sample", nullptr}, {"prompt", nullptr}, {"tokens", json::array()}});
    CHECK(repair(path, 4).empty());
    CHECK(lines_of(path).size() == 2);
}

TEST_CASE("a record is one write of one line") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    RunLog log = RunLog::create(path, kHeader);
    Faults faults;
    log.write(record_of(1));
    CHECK(faults.calls() == std::vector<std::string>{"write " + path.string()});
    log.sync();
    CHECK(faults.calls().back() == "sync " + path.string());
}

TEST_CASE("a resumed log has the records up to the checkpoint's step and continues from there") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    put_log(path);
    const std::string before = read_file(path);
    {
        RunLog log = RunLog::resume(path, 5, {});
        CHECK(read_file(path) == first_lines(before, 7));  // header, 5 steps, the validation at step 5
        for (int step = 6; step <= 10; ++step) log.write(record_of(step));
        log.write_validation(10, 12.0);
    }
    CHECK(read_file(path) == before);
    CHECK(repair(path, 0).empty());
    CHECK(read_file(path) == first_lines(before, 1));
}

TEST_CASE("a log says how each start of the run was made") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    put_log(path);
    {
        RunLog log = RunLog::resume(path, 5, {});
        log.write_start(5, kHeader);
        log.write(record_of(6));
    }
    RunLog::resume(path, 6, {}).write_start(6, kHeader);
    const auto lines = lines_of(path);
    REQUIRE(lines.size() == 10);  // header, 5 steps, a validation, a start, step 6, a start
    CHECK(lines[7].at("step") == 5);
    CHECK(without_time(lines[7].at("start")) == without_time(lines[0]));
    CHECK(lines[9].at("step") == 6);
    CHECK(repair(path, 5).empty());
    CHECK(lines_of(path).size() == 8);
}

TEST_CASE("a log torn at any byte is cut after its last whole record") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    put_log(path);
    const std::string before = read_file(path);
    const std::size_t header = before.find('\n') + 1;
    for (std::size_t size = 0; size <= before.size(); size += 7) {
        INFO("torn at " << size);
        put(path, before.substr(0, size));
        std::string said;
        CHECK(repair_run_log(path, 100, [&](const std::string& notice) { said = notice; }) == (size >= header));
        CHECK(said.empty());  // a kill does this: there is nothing to say
        CHECK(read_file(path) == before.substr(0, size >= header ? before.rfind('\n', size - 1) + 1 : 0));
    }
}

TEST_CASE("only a line that is no record goes, is reported, and stays in a copy") {
    for (const char* foreign : {"{\"step\": 4, \"los\n", "\n", "[1]\n", "{\"step\": \"4\"}\n", "{}\n", "\xff\n"}) {
        const ScratchFolder scratch;
        const fs::path path = scratch.path() / "log.jsonl";
        put_log(path);
        const std::string before = read_file(path);
        const std::string damaged =
            first_lines(before, 4) + foreign + before.substr(first_lines(before, 4).size()) + foreign;
        put(path, damaged);
        CHECK_THAT(repair(path, 100), Contains("line 5 and 1 more are not records") && Contains("log.jsonl.damaged-1"));
        CHECK(read_file(path) == before);
        CHECK(read_file(path.string() + ".damaged-1") == damaged);
        put(path, foreign);
        CHECK_THAT(repair(path, 100), Contains("line 1 is not a record") && Contains("log.jsonl.damaged-2"));
        CHECK(read_file(path.string() + ".damaged-1") == damaged);
    }
}

TEST_CASE("a log without a header gets one") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    const auto resumed = [&] {
        RunLog::resume(path, 5, kHeader).write(record_of(6));
        return lines_of(path);
    };
    CHECK(resumed().size() == 2);  // absent
    put(path, "{\"config\": {\"trai");
    CHECK(resumed().size() == 2);
    put(path, "{\"step\": 1}\n");
    CHECK(resumed().size() == 3);  // its records stay
    CHECK(resumed().at(0).at("device") == "CPU");
}

TEST_CASE("on a full disk the log ends with its last whole line, and continues when there is room") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    std::vector<std::string> said;
    RunLog log = RunLog::create(path, kHeader, [&](const std::string& notice) { said.push_back(notice); });
    log.write(record_of(1));
    const std::string before = read_file(path);
    {
        Faults faults;
        faults.limit_writes(10);
        faults.fail_at(1, ENOSPC);  // the second write, after 10 bytes of the line
        log.write(record_of(2));
    }
    CHECK(read_file(path) == before);
    REQUIRE(said.size() == 1);
    CHECK_THAT(said[0], Contains("log.jsonl: No space left on device") && Contains("held back"));
    {
        Faults faults;
        faults.fail_at(0, ENOSPC);
        log.write(record_of(3));
        CHECK(said.size() == 1);  // once is enough
    }
    {
        Faults faults;
        faults.fail_at(0, ENOSPC);
        CHECK_THROWS_WITH(log.sync(), Contains("log.jsonl: No space left on device"));
    }
    log.write(record_of(4));
    REQUIRE(said.size() == 2);
    CHECK_THAT(said[1], Contains("every line is written again"));
    const auto lines = lines_of(path);
    REQUIRE(lines.size() == 5);
    for (std::size_t step = 1; step <= 4; ++step) CHECK(lines[step].at("step") == step);
    {
        Faults faults;
        faults.fail_at(0, ENOSPC);
        log.write(record_of(5));
    }
    REQUIRE(said.size() == 3);
    log.sync();  // a checkpoint is next
    REQUIRE(said.size() == 4);
    CHECK_THAT(said[3], Contains("every line is written again"));
    CHECK(lines_of(path).size() == 6);
}

TEST_CASE("a log that was deleted, with its folder or by itself, is written again with all that it held") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path() / "run", path = folder / "log.jsonl";
    fs::create_directory(folder);
    RunLog log = RunLog::create(path, kHeader);
    log.write(record_of(1));
    CHECK(log.is_at_path());
    SECTION("by itself") { fs::remove(path); }
    SECTION("moved") { fs::rename(path, folder / "elsewhere"); }
    SECTION("replaced") {
        fs::remove(path);
        put(path, "another file");
    }
    SECTION("with its folder") {
        fs::remove_all(folder);
        CHECK_THROWS_WITH(log.write_anew(), Contains("log.jsonl"));
        fs::create_directory(folder);
    }
    CHECK_FALSE(log.is_at_path());
    log.write(record_of(2));
    log.write_anew();
    CHECK(log.is_at_path());
    log.write(record_of(3));
    const auto lines = lines_of(path);
    REQUIRE(lines.size() == 4);
    for (std::size_t step = 1; step <= 3; ++step) CHECK(lines[step].at("step") == step);
}

TEST_CASE("killed at any call of a truncation, the log is whole") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    bool was_killed = true;
    for (int call = 0; was_killed; ++call) {
        INFO("call " << call);
        put_log(path);
        const std::string before = read_file(path);
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            Faults faults;
            faults.kill_at(call);
            repair_run_log(path, 5, {});
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        was_killed = WIFSIGNALED(status);
        const std::string after = read_file(path);
        CHECK((after == before || after == first_lines(before, 7)));
        REQUIRE(call < 20);
    }
}

TEST_CASE("a log that cannot be written is named") {
    const ScratchFolder scratch;
    CHECK_THROWS_WITH(RunLog::create(scratch.path() / "absent/log.jsonl", kHeader), Contains("absent/log.jsonl"));
}
