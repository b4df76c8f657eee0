#include "src/train/rank_options.h"

#include "src/core/errors.h"
#include "src/train/ranks.h"

namespace coda {

RunOptions options_of_rank(const Config& config, RunOptions options) {
    const Ranks ranks(options.team);
    const std::int64_t steps = config.training.grad_accumulation_steps;
    if (steps % ranks.count() != 0) {
        throw UsageError(text("training.grad_accumulation_steps is ", steps, ", and ", ranks.count(),
                              " ranks share the micro-batches of a step: it must be a multiple of ", ranks.count(),
                              ", such as ", (steps / ranks.count() + 1) * ranks.count()));
    }
    if (options.oracle_step && ranks.count() > 1)
        throw UsageError("--oracle checks the ops of one GPU; start it with one rank");
    if (ranks.leads()) return options;
    options.timing.reset();
    options.dump_batches.reset();
    options.tensor_stats.reset();
    return options;
}

}  // namespace coda
