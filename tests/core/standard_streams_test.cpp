#include "src/core/standard_streams.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "tests/catch.h"
#include "tests/io/scratch_folder.h"

using namespace coda;

namespace {

/// Runs `action` in a process of its own, whose standard streams it may close; true if it returned true.
template <class Action>
bool holds_in_child(Action&& action) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(action() ? 0 : 1);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("a file that is opened later never becomes a standard stream") {
    for (int closed = 0; closed < 8; ++closed) {  // every subset of the three
        CAPTURE(closed);
        CHECK(holds_in_child([&] {
            for (int descriptor = 0; descriptor < 3; ++descriptor) {
                if ((closed >> descriptor & 1) != 0) ::close(descriptor);
            }
            prepare_standard_streams();
            char byte = 'x';
            const bool reads_fail = (closed & 1) == 0 || ::read(0, &byte, 1) < 0;
            const bool writes_fail = (closed & 2) == 0 || ::write(1, &byte, 1) < 0;
            const bool errors_fail = (closed & 4) == 0 || ::write(2, &byte, 1) < 0;
            return reads_fail && writes_fail && errors_fail && ::open("/dev/null", O_RDONLY) > 2;
        }));
    }
}

TEST_CASE("a write into a pipe that nobody reads fails, and the process lives") {
    CHECK(holds_in_child([] {
        prepare_standard_streams();
        int ends[2];
        if (::pipe(ends) != 0) return false;
        ::close(ends[0]);
        ::dup2(ends[1], STDOUT_FILENO);
        return message_of([] { print("text\n"); }) == "standard output: Broken pipe";
    }));
}

TEST_CASE("printing to a closed or full standard output throws with the reason") {
    CHECK(holds_in_child([] {
        ::close(STDOUT_FILENO);
        prepare_standard_streams();
        return message_of([] { print("text\n"); }) == "standard output: Bad file descriptor";
    }));
    CHECK(holds_in_child([] {
        ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO);
        return message_of([] { print_bytes("text\n"); }) == "standard output: No space left on device";
    }));
}

TEST_CASE("what stdio still holds is missed when standard output is closed") {
    CHECK(holds_in_child([] {
        ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO);
        std::printf("text");  // into the buffer
        return message_of([] { close_standard_output(); }) == "standard output: No space left on device";
    }));
    CHECK(holds_in_child([] {
        ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
        std::printf("text");
        return message_of([] { close_standard_output(); }).empty();
    }));
}
