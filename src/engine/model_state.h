// What a run carries from step to step: weights and moments, from where they come and how they are kept.
#pragma once

#include <filesystem>

#include "src/engine/executor.h"
#include "src/model/master_weights.h"

namespace coda {

class Segment;
struct CheckpointInfo;

/// Sends master weights to the executor: the working copy made of them and themselves, where its plan has them, and the
/// embedding where generation looks it up by itself. The host holds a part of them at a time. Copies of single matrices
/// are made by Pass::scales. All functions here that fill the working copy end with Pass::derive.
void send_weights(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                  const MasterWeights& weights);

/// What a checkpoint holds, by the name of its segment: weights and moments, and of FP8 training what its scales follow
/// from. The plan has them all: it trains.
struct StateSegment {
    const char* name;
    View view;
    std::vector<OwnRange> ranges{};  // elements of the checkpoint's segment that the view has: all, or a rank's
    std::int64_t count = 0;          // elements of the checkpoint's segment

    std::int64_t bytes() const { return count * size_of(view.dtype); }
};
std::vector<StateSegment> state_segments(const Schedules& schedules);

/// The segment as a checkpoint takes it, read from the executor's memory when it is written.
Segment executor_segment(Executor& executor, const StateSegment& segment);

/// The history of ScaleViews; F8Scales loads it.
inline constexpr const char* kF8Segment = "f8_history";

/// Weights and moments of a checkpoint, bit by bit.
void load_state(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                const CheckpointInfo& checkpoint);

/// Makes the working copy, if the plan has one, again from the master weights on the executor. load_state has already
/// done so.
void renew_working(Executor& executor, const Schedules& schedules, const ParameterLayout& layout);

}  // namespace coda
