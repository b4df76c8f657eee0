// How the programs begin and end.
#pragma once

#include <functional>

namespace coda {

/// Prepares the standard streams and runs `body`, whose result is the exit code. An exception becomes the line
/// "NAME: message" on standard error and the code of its type (src/core/errors.h).
int run_program(const char* name, const std::function<int()>& body);

}  // namespace coda
