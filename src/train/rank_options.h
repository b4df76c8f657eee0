// What a run is asked for, as one of its ranks does it.
#pragma once

#include "src/config/config.h"
#include "src/train/run_options.h"

namespace coda {

/// Throws UsageError, naming the key, unless `ranks` ranks can share a step's micro-batches.
void require_divisible(const Config& config, int ranks);

/// The options of options.team's rank: only the first one writes the files that they
/// name, and to the console. Throws UsageError where the ranks cannot share a step's micro-batches, or a flag is for
/// one rank.
RunOptions options_of_rank(const Config& config, RunOptions options);

}  // namespace coda
