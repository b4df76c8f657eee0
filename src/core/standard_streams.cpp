#include "src/core/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>

#include "kernels/core/error.h"
#include "src/core/printable.h"

namespace coda {

namespace {

std::string reason(int error) {
    return error == 0 ? "not all of it could be written" : std::generic_category().message(error);
}

}  // namespace

void prepare_standard_streams() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(descriptor, F_GETFD) >= 0) continue;
        // open(2) takes the lowest number that is free, which is this one. It is opened for reading where the program
        // would write, and the other way round, so that its use still fails.
        const int opened = ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        require(opened == descriptor, "descriptor ", descriptor,
                " is closed, and /dev/null cannot take its place: ", reason(errno));
    }
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
}

std::FILE* null_stream() {
    static std::FILE* const stream = std::fopen("/dev/null", "w");
    require(stream != nullptr, "/dev/null cannot be opened: ", reason(errno));
    return stream;
}

void print(std::string_view text) { print_bytes(printable(text)); }

void print_bytes(std::string_view text) {
    errno = 0;
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    require(written, "standard output: ", reason(errno));
}

bool prints_to_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

void close_standard_output() {
    const bool whole = std::ferror(stdout) == 0;
    errno = 0;
    const bool closed = std::fclose(stdout) == 0;
    require(whole && closed, "standard output: ", reason(closed ? 0 : errno));
}

}  // namespace coda
