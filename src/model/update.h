// The optimizer's part of a step.
#pragma once

#include "src/model/host_views.h"
#include "src/model/parameters.h"
#include "src/model/schedule_options.h"

namespace coda {

/// Gradient norm and AdamW, over the flat segments.
void build_update(const ParameterLayout& layout, const ScheduleOptions& options, HostViews host, StepList& step);

}  // namespace coda
