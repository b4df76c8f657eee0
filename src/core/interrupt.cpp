#include "src/core/interrupt.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace coda {

namespace {

// A signal handler can reach only static storage, and of other threads only what is lock-free.
std::atomic<bool> save_seen = false;
std::atomic<std::int64_t> stop_seen = 0;  // nanoseconds of the monotonic clock; 0: none
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{1000000000} * time.tv_sec + time.tv_nsec;
}

extern "C" void remember_stop(int) {
    std::int64_t none = 0;
    stop_seen.compare_exchange_strong(none, now());
}
extern "C" void remember_save(int) { save_seen = true; }

void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
}

bool is_ignored(int signal) {
    struct sigaction action {};
    return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void watch_interrupts() {
    stop_seen = 0;
    constexpr int kOnce = static_cast<int>(SA_RESETHAND | SA_RESTART);
    handle(SIGINT, remember_stop, kOnce);
    handle(SIGTERM, remember_stop, kOnce);
    if (!is_ignored(SIGHUP)) handle(SIGHUP, remember_stop, SA_RESTART);
}

bool interrupted() { return stop_seen != 0; }

bool interrupted_for(double seconds) {
    const std::int64_t seen = stop_seen;
    return seen != 0 && static_cast<double>(now() - seen) > 1e9 * seconds;
}

void watch_save_requests() {
    save_seen = false;
    handle(SIGUSR1, remember_save, SA_RESTART);
}

bool save_requested() { return save_seen.exchange(false); }

}  // namespace coda
