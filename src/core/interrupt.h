// Turns Ctrl-C and SIGTERM into a request that the training loop sees between steps.
#pragma once

namespace coda {

/// Installs the handlers. The first signal is remembered; a second one ends the process at once.
void watch_interrupts();

/// Whether a signal has arrived since watch_interrupts().
bool interrupted();

}  // namespace coda
