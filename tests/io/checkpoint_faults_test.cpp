// Checkpoints where the operating system fails or kills the process: the earlier ones stay whole.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "src/io/checkpoint.h"
#include "tests/catch.h"
#include "tests/io/faults.h"
#include "tests/io/test_checkpoints.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;

namespace {

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
    int within_a_write = 0;
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
        const std::filesystem::directory_iterator checkpoints(scratch.path() / "checkpoints");
        within_a_write += std::any_of(begin(checkpoints), end(checkpoints), [](const auto& entry) {
            return entry.path().filename().string().starts_with(".tmp-step");
        });
        const auto info = newest(scratch.path());
        REQUIRE(info);
        CHECK(info->step >= last);
        check_contents(*info, bytes);
        last = info->step;
    }
    CHECK(last > 0);
    CHECK(within_a_write > 0);
}
