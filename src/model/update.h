// The optimizer's part of a step.
#pragma once

#include "src/model/host_views.h"
#include "src/model/parameters.h"
#include "src/model/schedule_options.h"
#include "src/model/tensors/weights.h"

namespace coda {

/// Gradient norm and AdamW, over the flat segments; then the scales of FP8 tensors and the matrices' copies
/// (Weights::renew). `squares`: (1, SumSquares::sums_of(layout.count)) f64.
void build_update(const ParameterLayout& layout, const ScheduleOptions& options, HostViews host, const Weights& weights,
                  View squares, StepList& step);

}  // namespace coda
