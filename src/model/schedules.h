// The schedules of a run, built only from the configuration: what to execute, on which buffers, for any executor.
#pragma once

#include <string>
#include <vector>

#include "kernels/ops.h"
#include "src/core/buffers.h"
#include "src/core/memory_plan.h"
#include "src/model/division.h"
#include "src/model/host_views.h"
#include "src/model/parameters.h"
#include "src/model/pass.h"
#include "src/model/schedule_options.h"
#include "src/model/tensors/weights.h"

namespace coda {

struct Schedules {
    Division division;
    BufferTable buffers;
    HostViews host;
    Schedule first, further, last, update, scales, derive, evaluate, decode;
    std::vector<Schedule> prefill;  // by length, as prefill_lengths has them
    std::int32_t transfers = 0;     // numbers that StartExchange has in all of them
    Weights weights;

    const Schedule& operator[](Pass pass) const;  // empty where it was not requested
    Schedule& operator[](Pass pass);              // of a pass that it has
    bool has(Pass pass) const { return !(*this)[pass].empty(); }
    std::vector<Pass> passes() const;          // those it has, in the order of kPasses
    std::vector<const Schedule*> all() const;  // their schedules

    /// Whether any pass touches the view's buffer: others have no place in memory.
    bool uses(const View& view) const;
};

/// For messages. A prefill has its number of rows in its name, so `schedules` must have it.
std::string name_of(const Schedules& schedules, Pass pass);

/// The schedules of `passes`. Without Pass::update there are no master weights on the device: the host fills the
/// working copy, and looks up a tied embedding (HostViews::embedded; generation has HostViews::embedding).
/// Pass::decode and Pass::prefill need options.generation. Pass::last is absent with one rank. Pass::derive comes with
/// any other pass, where the model has something to derive.
Schedules build_schedules(const ModelConfig& model, const ParameterLayout& layout, const ScheduleOptions& options,
                          PassSet passes = kAllPasses);

/// Places every buffer for all schedules and checks each for hazards in that place.
MemoryPlan plan_and_check(const Schedules& schedules);

/// cos and sin of every (position, pair): row p, columns 2i and 2i + 1, angle p theta^(-2i/hd), the frequency rescaled
/// by rope_scaling if the model has one. (positions, hd) row-major. Yarn's attention factor a is in them, a cos and a
/// sin, so that q and k are a R z, and scores carry a². What takes a gradient back is the transpose, a Rᵀ, which
/// multiplies by the same two numbers; the inverse would divide by a.
std::vector<double> rope_table(const ModelConfig& model, std::int64_t positions);

}  // namespace coda
