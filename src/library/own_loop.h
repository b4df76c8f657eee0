// A caller's own training loop over the passes of coda_train: what is behind coda_run of coda.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/config/command_line.h"
#include "src/core/console.h"
#include "src/engine/ranks.h"
#include "src/engine/session.h"
#include "src/engine/weights_source.h"
#include "src/train/f8_scales.h"
#include "src/train/run_options.h"
#include "src/train/step_passes.h"

namespace coda {

class OwnLoop {
  public:
    /// Plans, allocates, and takes the weights from where the command line says. Throws UsageError for a command line
    /// that asks for more than a run, and what a training run throws before its first step.
    OwnLoop(const CommandLine& command, Team* team);

    /// Micro-batches of a step that this rank has.
    std::int64_t micro_batches() const;
    /// Steps that the weights have behind them.
    std::int64_t step() const { return step_; }

    /// The gradients of a step, on all ranks together; returns when they are there. (micro_batches(), B, T) each; a
    /// negative target is ignored. Throws Error for an id that the model has no row for.
    void gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);
    /// The optimizer's step, with this learning rate. With rate 0 the master weights stay as they are, and the working
    /// copies are made of them again.
    void update(double learning_rate);

    struct Result {
        double loss = 0, norm = 0;
    };
    /// Of the last step, after its update. Throws NonFiniteError where one is not finite: the weights are as they were
    /// before, and no later update changes them.
    Result result();

    /// The mean loss of a micro-batch, (B, T).
    double validate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);

    Session& session() { return session_; }

  private:
    TokenBatch batch_of(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) const;

    Config config_;
    RunOptions options_;
    Ranks ranks_;
    Console console_;
    Session session_;
    WeightsSource weights_;
    F8Scales scales_;
    StepPasses passes_;
    std::int64_t step_ = 0;
    std::int64_t counted_ = 0;  // targets of the latest step
};

}  // namespace coda
