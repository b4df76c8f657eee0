// The optimizer's part of a step.
#pragma once

#include "src/model/exchanges.h"
#include "src/model/host_views.h"
#include "src/model/parameters.h"
#include "src/model/schedule_options.h"
#include "src/model/tensors/weights.h"

namespace coda {

/// Gradient norm and AdamW, over what the rank has of the flat segments; then the scales of FP8 tensors and the
/// matrices' copies (Weights::renew). Where there are several ranks, all of them get the sums of loss and shared
/// gradients, the same norm, and the updated working copy.
void build_update(const ParameterLayout& layout, const ScheduleOptions& options, HostViews host, const Weights& weights,
                  Exchanges& exchanges, StepList& step);

/// The scales and copies of FP8 training, from the largest magnitudes of all ranks. `host`: as the update left it.
void build_renewal(const HostViews& host, const Weights& weights, Exchanges& exchanges, StepList& step);

}  // namespace coda
