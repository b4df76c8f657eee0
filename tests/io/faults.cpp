#include "tests/io/faults.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <limits>
#include <map>
#include <utility>

namespace {

struct State {
    std::int64_t fail_call = -1;
    int error = 0;
    std::int64_t kill_call = -1;
    std::int64_t write_limit = std::numeric_limits<std::int64_t>::max();
    bool exchange = true;
    std::vector<std::string> calls;
    std::map<std::string, int> unsynced;  // path -> a descriptor that outlives the writer's own
};

// Null outside of the tests that make faults: every call then passes through.
State* state = nullptr;

std::string path_of(int descriptor) {
    std::array<char, 4096> path{};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
    return {path.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

[[noreturn]] void die() {
    for (const auto& [path, descriptor] : state->unsynced) ::syscall(SYS_ftruncate, descriptor, 0);
    ::kill(::getpid(), SIGKILL);
    std::abort();
}

enum class Verdict { go, fail, die };

Verdict account(std::string call) {
    if (state == nullptr) return Verdict::go;
    const auto number = static_cast<std::int64_t>(state->calls.size());
    state->calls.push_back(std::move(call));
    if (number == state->kill_call) return Verdict::die;
    if (number != state->fail_call) return Verdict::go;
    errno = state->error;
    return Verdict::fail;
}

/// For calls that do nothing if the process dies in them.
bool fails(std::string call) {
    const Verdict verdict = account(std::move(call));
    if (verdict == Verdict::die) die();
    return verdict == Verdict::fail;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
    std::va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if ((flags & O_CREAT) != 0 && fails(std::string("create ") + path)) return -1;
    return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

ssize_t write(int descriptor, const void* data, std::size_t size) {
    if (state == nullptr || descriptor <= STDERR_FILENO) return ::syscall(SYS_write, descriptor, data, size);
    const std::string path = path_of(descriptor);
    if (!state->unsynced.contains(path)) state->unsynced[path] = ::dup(descriptor);
    switch (account("write " + path)) {
        case Verdict::fail: return -1;
        case Verdict::die: ::syscall(SYS_write, descriptor, data, size / 2); die();
        case Verdict::go: break;
    }
    const std::size_t taken = std::min(size, static_cast<std::size_t>(state->write_limit));
    return ::syscall(SYS_write, descriptor, data, taken);
}

int fsync(int descriptor) {
    if (state == nullptr) return 0;
    const std::string path = path_of(descriptor);
    if (fails("sync " + path)) return -1;
    if (const auto found = state->unsynced.find(path); found != state->unsynced.end()) {
        ::close(found->second);
        state->unsynced.erase(found);
    }
    return 0;
}

int ftruncate(int descriptor, off_t size) noexcept {
    if (state != nullptr && fails("truncate " + path_of(descriptor))) return -1;
    return static_cast<int>(::syscall(SYS_ftruncate, descriptor, size));
}

int rename(const char* from, const char* to) noexcept {
    if (fails(std::string("rename ") + from + " " + to)) return -1;
    return static_cast<int>(::syscall(SYS_rename, from, to));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned int flags) noexcept {
    if (state != nullptr && !state->exchange) {
        errno = EINVAL;
        return -1;
    }
    if (fails(std::string("exchange ") + from + " " + to)) return -1;
    return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int mkdir(const char* path, mode_t mode) noexcept {
    if (fails(std::string("mkdir ") + path)) return -1;
    return static_cast<int>(::syscall(SYS_mkdir, path, mode));
}

}  // extern "C"

namespace coda {

Faults::Faults() { state = new State; }

Faults::~Faults() {
    for (const auto& [path, descriptor] : state->unsynced) ::close(descriptor);
    delete std::exchange(state, nullptr);
}

void Faults::fail_at(std::int64_t call, int error) {
    state->fail_call = call;
    state->error = error;
}

void Faults::kill_at(std::int64_t call) { state->kill_call = call; }

void Faults::limit_writes(std::int64_t bytes) { state->write_limit = bytes; }

void Faults::no_exchange() { state->exchange = false; }

const std::vector<std::string>& Faults::calls() const { return state->calls; }

}  // namespace coda
