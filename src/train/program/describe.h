// --dry-run and --print-schedule.
#pragma once

#include "src/config/command_line.h"

namespace coda {

/// Checks configuration, data and memory, and prints the plan, or every operation; of the first of `ranks` ranks.
/// Allocates nothing. Returns the exit code. Throws as the run would.
int describe(const CommandLine& command, int ranks);

}  // namespace coda
