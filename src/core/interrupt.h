// Turns signals into requests that a loop sees between steps: to stop, and to save and continue.
#pragma once

namespace coda {

/// Installs the handlers of SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is gone). The first signal is remembered.
/// A second SIGINT, or a second SIGTERM, ends the process at once; further SIGHUPs do not, because a terminal that
/// closes sends two: the kernel's and the shell's. A SIGHUP that is ignored, as under nohup, stays ignored.
void watch_interrupts();

/// Whether one of them has arrived since watch_interrupts().
bool interrupted();

/// Whether the first of them arrived more than `seconds` ago.
bool interrupted_for(double seconds);

/// Installs the handler of SIGUSR1, which asks a run to save and continue. Without it the signal ends the process.
void watch_save_requests();

/// Whether SIGUSR1 has arrived since the last call that returned true.
bool save_requested();

}  // namespace coda
