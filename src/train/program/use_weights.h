// --eval and --export.
#pragma once

#include "src/config/command_line.h"

namespace coda {

/// Prints the loss and the choices of weights, or writes them as a Hugging Face folder; changes none. Returns the exit
/// code. Throws Error, naming file or key.
int use_weights(const CommandLine& command);

}  // namespace coda
