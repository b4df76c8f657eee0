#include "src/io/run_log.h"

#include <sys/wait.h>
#include <unistd.h>

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
    CHECK(lines[0] == json{{"config", {{"training", {{"steps", 10}}}}},
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

TEST_CASE("a resumed log has the records up to the checkpoint's step and goes on from there") {
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
    CHECK(truncate_run_log(path, 0));
    CHECK(read_file(path) == first_lines(before, 1));
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
        CHECK(truncate_run_log(path, 100) == (size >= header));
        const std::string expected =
            size >= header ? before.substr(0, before.rfind('\n', size - 1) + 1) : before.substr(0, size);
        CHECK(read_file(path) == expected);
    }
}

TEST_CASE("what follows a line that is no record goes") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    put_log(path);
    const std::string before = read_file(path);
    for (const char* foreign : {"{\"step\": 4, \"los\n", "\n", "[1]\n", "{\"step\": \"4\"}\n", "{}\n"}) {
        put(path, first_lines(before, 4) + foreign + before.substr(first_lines(before, 4).size()));
        CHECK(truncate_run_log(path, 100));
        CHECK(read_file(path) == first_lines(before, 4));
    }
}

TEST_CASE("a log without a header is begun anew") {
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
    CHECK(resumed().at(0).at("device") == "CPU");
}

TEST_CASE("a full disk ends the log with its last whole line") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "log.jsonl";
    RunLog log = RunLog::create(path, kHeader);
    log.write(record_of(1));
    const std::string before = read_file(path);
    {
        Faults faults;
        faults.limit_writes(10);
        faults.fail_at(1, ENOSPC);  // the second write, after 10 bytes of the line
        CHECK_THROWS_WITH(log.write(record_of(2)), Contains("log.jsonl: No space left on device"));
    }
    CHECK(read_file(path) == before);
    log.write(record_of(2));
    CHECK(lines_of(path).size() == 3);
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
            truncate_run_log(path, 5);
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
