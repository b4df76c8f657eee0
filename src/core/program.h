// How the programs begin and end.
#pragma once

#include <exception>
#include <functional>
#include <string>

namespace coda {

/// What a person reads of an error: its text, printable; where memory is gone, that it is.
std::string message_of(const std::exception& error);

/// Prepares the standard streams and runs `body`, whose result is the exit code. An exception becomes the line
/// "NAME: message" on standard error and the code of its type (src/core/errors.h).
int run_program(const char* name, const std::function<int()>& body);

/// Ends the process at once with kExitRuntime and "coda_train: message" on standard error, without a clean-up,
/// which would wait for a GPU that does not finish.
[[noreturn]] void abandon_program(const std::string& message);

}  // namespace coda
