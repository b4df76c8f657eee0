// What a run is asked for, as one of its ranks does it.
#pragma once

#include "src/config/config.h"
#include "src/train/run_options.h"

namespace coda {

/// The options of options.team's rank: only the first one writes the files that they name. Throws UsageError, naming
/// the key or the flag, where the ranks cannot share a step's micro-batches, or a flag is for one rank.
RunOptions options_of_rank(const Config& config, RunOptions options);

}  // namespace coda
