#include "src/core/interrupt.h"

#include <csignal>

namespace coda {

namespace {

// A signal handler can reach only static storage.
volatile std::sig_atomic_t stop_seen = 0, save_seen = 0;

extern "C" void remember_stop(int) { stop_seen = 1; }
extern "C" void remember_save(int) { save_seen = 1; }

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

void watch_save_requests() {
    save_seen = 0;
    handle(SIGUSR1, remember_save, SA_RESTART);
}

bool save_requested() {
    if (save_seen == 0) return false;
    save_seen = 0;
    return true;
}

}  // namespace coda
