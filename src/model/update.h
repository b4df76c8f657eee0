// The optimizer's part of a step.
#pragma once

#include <vector>

#include "src/model/exchanges.h"
#include "src/model/host_views.h"
#include "src/model/parameters.h"
#include "src/model/schedule_options.h"
#include "src/model/tensors/weights.h"

namespace coda {

/// Gradient norm and AdamW, over what the rank has of the flat segments; then the scales of FP8 tensors and the
/// matrices' copies (Weights::renew), and what else follows from the weights (Weights::derive). Where there are several
/// ranks, all of them get the sums of loss and shared gradients and the same norm. Returns the parts of the updated
/// working copy that are on their way to all ranks: whoever reads one waits for it (receive_where_read).
std::vector<Exchanges::UnderWay> build_update(const ParameterLayout& layout, const ScheduleOptions& options,
                                              HostViews host, const Weights& weights, Exchanges& exchanges,
                                              StepList& step);

/// The scales and copies of FP8 training, from the largest magnitudes of all ranks. `host`: as the update left it.
void build_renewal(const HostViews& host, const Weights& weights, Exchanges& exchanges, StepList& step);

}  // namespace coda
