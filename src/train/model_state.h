// What a run carries from step to step: weights and moments, from where they come and how they are kept.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "src/io/checkpoint.h"
#include "src/model/parameters.h"
#include "src/train/executor.h"

namespace coda {

/// Fresh weights of (model, seed); moments zero.
void initialise_state(Executor& executor, const Schedules& schedules, const ModelConfig& model,
                      const ParameterLayout& layout, std::uint64_t seed);

/// Weights of a Hugging Face folder; moments zero.
void import_state(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                  const std::filesystem::path& folder);

/// Weights to a new Hugging Face folder, in fp32.
void export_state(Executor& executor, const Schedules& schedules, const ModelConfig& model,
                  const ParameterLayout& layout, const std::filesystem::path& folder);

/// Weights and moments to and from a checkpoint, bit by bit.
void save_state(Executor& executor, const Schedules& schedules, const std::filesystem::path& run, std::int64_t step,
                const nlohmann::json& state, std::int64_t keep);
void load_state(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                const CheckpointInfo& checkpoint);

/// Makes the working copy anew from the master weights on the executor. The functions above have done so.
void renew_working(Executor& executor, const Schedules& schedules, const ParameterLayout& layout);

}  // namespace coda
