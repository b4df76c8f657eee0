#include "src/io/run_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "src/io/files.h"
#include "tests/catch.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

/// The exit status of a child that runs `action`.
template <class Action>
int status_of_child(const Action& action) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(action());
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a run has one writer, whose name the next one is told") {
    const ScratchFolder scratch;
    const fs::path run = scratch.path() / "runs/one";
    {
        const RunLock lock(run, "coda_train --config c.json");
        CHECK(lock.held());
        const auto holder = nlohmann::json::parse(read_file(run / "lock"));
        CHECK(holder.at("pid") == ::getpid());
        const std::string refused = message_of([&] { RunLock(run, "another"); });
        CHECK_THAT(refused, Contains("runs/one is in use by process " + std::to_string(::getpid())));
        CHECK_THAT(refused, Contains(holder.at("host").get<std::string>()));
        CHECK_THAT(refused, Contains("coda_train --config c.json"));
        CHECK(status_of_child([&] { return message_of([&] { RunLock(run, "child"); }).empty() ? 1 : 0; }) == 0);
        CHECK(nlohmann::json::parse(read_file(run / "lock")) == holder);
    }
    CHECK_FALSE(fs::exists(scratch.path() / "runs"));  // nothing was written there
    fs::create_directories(run);
    put(run / "log.jsonl", "a run");
    CHECK(RunLock(run, "c").held());
    CHECK(fs::exists(run / "log.jsonl"));
    CHECK_FALSE(fs::exists(run / "lock"));
}

TEST_CASE("the lock of a killed process is free") {
    const ScratchFolder scratch;
    CHECK(status_of_child([&] {
              new RunLock(scratch.path(), "killed");  // never destroyed
              return 7;
          }) == 7);
    CHECK(fs::exists(scratch.path() / "lock"));
    CHECK(RunLock(scratch.path(), "next").held());
}

TEST_CASE("of many that start at once one gets the lock") {
    const ScratchFolder scratch;
    constexpr int kStarts = 24;
    int told[2] = {}, go[2] = {}, end[2] = {};  // nothing is written to go and end: the parent closes them
    REQUIRE((::pipe(told) == 0 && ::pipe(go) == 0 && ::pipe(end) == 0));
    std::vector<pid_t> children;
    for (int i = 0; i < kStarts; ++i) {
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            for (const int inherited : {go[1], end[1]}) ::close(inherited);
            const auto tell_and_wait = [&](const int* pipe) {
                char byte = 0;
                if (::write(told[1], "t", 1) != 1 || ::read(pipe[0], &byte, 1) != 0) ::_exit(2);
            };
            tell_and_wait(go);
            try {
                const RunLock lock(scratch.path(), "start");
                tell_and_wait(end);            // until all have tried
                ::_exit(lock.held() ? 0 : 3);  // as killed: the file stays
            } catch (const Error&) {
                tell_and_wait(end);
                ::_exit(1);
            }
        }
        children.push_back(child);
    }
    ::close(told[1]);  // so that a read ends when no child is left
    for (const auto* pipe : {go, end}) {
        char byte = 0;
        for (int i = 0; i < kStarts; ++i) REQUIRE(::read(told[0], &byte, 1) == 1);
        for (const int side : {pipe[0], pipe[1]}) ::close(side);
    }
    ::close(told[0]);
    int winners = 0, losers = 0;
    for (const pid_t child : children) {
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        winners += WEXITSTATUS(status) == 0;
        losers += WEXITSTATUS(status) == 1;
    }
    CHECK(winners == 1);
    CHECK(losers == kStarts - 1);
}

TEST_CASE("a lock knows that its folder is gone, and is taken again") {
    const ScratchFolder scratch;
    const fs::path run = scratch.path() / "run";
    RunLock lock(run, "c");
    CHECK(lock.intact());
    SECTION("deleted") { fs::remove_all(run); }
    SECTION("moved") { fs::rename(run, scratch.path() / "elsewhere"); }
    CHECK_FALSE(lock.intact());
    lock.renew();
    CHECK(lock.intact());
    CHECK_THAT(message_of([&] { RunLock(run, "another"); }), Contains("in use"));
}
