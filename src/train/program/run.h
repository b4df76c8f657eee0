// coda_train: what its command line asks for, done.
#pragma once

#include "src/config/command_line.h"
#include "src/engine/team.h"

namespace coda {

/// Returns the exit code. Throws UsageError for flags that exclude each other, and what the run, the answer or the
/// export throws. `team`: whose rank this is, null for one rank. Ranks that were started otherwise than the first one
/// (build, configuration, flags) are an Error that names the rank and the difference. What is only printed the first
/// rank prints.
int run(const CommandLine& command, Team* team);

}  // namespace coda
