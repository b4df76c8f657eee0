// One arena for all buffers of a run, laid out before the first step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "src/core/buffers.h"

namespace coda {

struct MemoryPlan {
    std::vector<std::int64_t> offset;   // bytes from the start of the arena, by BufferId; -1: used by no schedule
    std::int64_t persistent_bytes = 0;  // [0, persistent_bytes): persistent buffers in order of the table
    std::int64_t transient_bytes = 0;   // then the shared area of the transient ones
    std::int64_t live_bytes = 0;        // most bytes of transient buffers alive at one step: no plan can need less

    std::int64_t arena_bytes() const { return persistent_bytes + transient_bytes; }
};

/// Alignment of every buffer in the arena, in bytes.
inline constexpr std::int64_t kBufferAlignment = 1024;

/// A buffer that no schedule touches has no place. Persistent buffers lie one after the other. A transient buffer is
/// alive from the first to the last step of a schedule that touches it, and two of them share bytes only if no schedule
/// has both alive. The largest is placed first, each at the lowest offset that is free for its whole life. The result
/// is deterministic. Throws Error where the buffers take kMostBytes or more.
MemoryPlan plan_memory(const BufferTable& buffers, std::span<const Schedule* const> schedules);

}  // namespace coda
