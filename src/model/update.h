// The optimizer's part of a step.
#pragma once

#include "src/model/float8_state.h"
#include "src/model/host_views.h"
#include "src/model/parameters.h"
#include "src/model/schedule_options.h"

namespace coda {

/// Gradient norm and AdamW, over the flat segments; then the scales of FP8 tensors and the matrices' copies.
void build_update(const ParameterLayout& layout, const ScheduleOptions& options, HostViews host,
                  const FlatSegments& segments, const Float8State& float8, StepList& step);

}  // namespace coda
