#include "src/core/interrupt.h"

#include <atomic>
#include <csignal>

namespace coda {

namespace {

// A signal handler can reach only static storage, and of other threads only what is lock-free.
std::atomic<bool> stop_seen = false, save_seen = false;
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void remember_stop(int) { stop_seen = true; }
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
    stop_seen = false;
    constexpr int kOnce = static_cast<int>(SA_RESETHAND | SA_RESTART);
    handle(SIGINT, remember_stop, kOnce);
    handle(SIGTERM, remember_stop, kOnce);
    if (!is_ignored(SIGHUP)) handle(SIGHUP, remember_stop, SA_RESTART);
}

bool interrupted() { return stop_seen; }

void watch_save_requests() {
    save_seen = false;
    handle(SIGUSR1, remember_save, SA_RESTART);
}

bool save_requested() { return save_seen.exchange(false); }

}  // namespace coda
