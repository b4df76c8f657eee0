// What a run carries from step to step: weights and moments, from where they come and how they are kept.
#pragma once

#include <filesystem>

#include "src/io/checkpoint.h"
#include "src/model/master_weights.h"
#include "src/train/executor.h"

namespace coda {

/// Sends master weights to the executor: the working copy made of them, and themselves where its plan has them. The
/// host holds a part of them at a time.
void send_weights(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                  const MasterWeights& weights);

/// Weights and moments to and from a checkpoint, bit by bit. The plan has them all: it trains.
void save_state(Executor& executor, const Schedules& schedules, const std::filesystem::path& run, std::int64_t step,
                const nlohmann::json& state, std::int64_t keep);
void load_state(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                const CheckpointInfo& checkpoint);

/// Makes the working copy anew from the master weights on the executor. load_state has done so.
void renew_working(Executor& executor, const Schedules& schedules, const ParameterLayout& layout);

}  // namespace coda
