// The passes of generation with a cache: the blocks of training, over the rows of a prompt or the newest tokens.
#pragma once

#include "src/model/schedules.h"

namespace coda {

/// Adds the buffers of options.generation, their views in HostViews, and the schedules decode and prefill.
/// `has_master`: the plan has all master weights.
void add_generation(const ModelConfig& model, const ParameterLayout& layout, const ScheduleOptions& options,
                    bool has_master, Schedules& schedules);

}  // namespace coda
