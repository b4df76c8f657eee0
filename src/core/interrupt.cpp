#include "src/core/interrupt.h"

#include <csignal>

namespace coda {

namespace {

// A signal handler can reach only static storage.
volatile std::sig_atomic_t signal_seen = 0;

extern "C" void remember_signal(int) { signal_seen = 1; }

}  // namespace

void watch_interrupts() {
    signal_seen = 0;
    struct sigaction action {};
    action.sa_handler = remember_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return signal_seen != 0; }

}  // namespace coda
