// A training run of several ranks that are threads.
#pragma once

#include <memory>
#include <vector>

#include "src/engine/thread_team.h"
#include "src/train/run_samples.h"
#include "src/train/trainer.h"
#include "tests/catch.h"
#include "tests/train/training_folder.h"

namespace coda {

/// The exit code, which must be the same for all ranks.
inline int train_ranks(const Folder& folder, const Config& config, int ranks, bool resume = false) {
    std::vector<int> codes(static_cast<std::size_t>(ranks));
    run_thread_team(ranks, 1, [&](Team& team) {
        RunOptions options = folder.options();
        options.resume = resume;
        options.team = &team;
        if (config.samples.interval > 0)
            options.prompts = std::make_shared<const RunPrompts>(run_prompts(config, resume));
        codes[static_cast<std::size_t>(team.rank())] = Trainer(config, options).train();
    });
    for (const int code : codes) CHECK(code == codes[0]);
    return codes[0];
}

}  // namespace coda
