#include "src/train/rank_options.h"

#include "src/core/errors.h"
#include "src/core/standard_streams.h"
#include "src/engine/ranks.h"

namespace coda {

void require_divisible(const Config& config, int ranks) {
    const std::int64_t steps = config.training.grad_accumulation_steps;
    if (steps % ranks == 0) return;
    throw UsageError(text("training.grad_accumulation_steps is ", steps, ", and ", ranks,
                          " ranks share the micro-batches of a step: it must be a multiple of ", ranks, ", such as ",
                          (steps / ranks + 1) * ranks));
}

RunOptions options_of_rank(const Config& config, RunOptions options) {
    const Ranks ranks(options.team);
    require_divisible(config, ranks.count());
    if (options.oracle_step && ranks.count() > 1)
        throw UsageError("--oracle checks the ops of one GPU; start it with one rank");
    if (ranks.leads()) return options;
    options.timing.reset();
    options.dump_batches.reset();
    options.tensor_stats.reset();
    options.out = options.err = null_stream();
    return options;
}

}  // namespace coda
