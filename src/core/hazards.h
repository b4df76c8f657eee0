// Does a schedule, in its order and with its places in memory, compute what its operands mean?
#pragma once

#include <string>
#include <vector>

#include "kernels/ops.h"
#include "src/core/buffers.h"
#include "src/core/memory_plan.h"

namespace coda {

/// Replays the schedule over byte ranges of the arena. For every byte it remembers which value of which buffer is
/// there, and it reports each operand that would not find what it means:
///   - a read before any write (persistent buffers begin as value 0);
///   - a read of another value: after an in-place update that came too early, or before a write that came too late;
///   - a result of this schedule overwritten before anything has read it (an accumulation that begins again);
///   - a read of bytes that a buffer sharing them has overwritten (a wrong memory plan);
///   - an op that reads and writes the same bytes, unless it says that it works in place;
///   - two results of one op on the same bytes; a view outside its buffer.
/// One sentence each, which names step, layer, operand, buffer and the last step that wrote the bytes. Empty: no
/// hazard.
std::vector<std::string> find_hazards(const Schedule& schedule, const BufferTable& buffers, const MemoryPlan& plan);

/// Throws Error with the first hazards, if there are any.
void require_no_hazards(const std::string& schedule_name, const Schedule& schedule, const BufferTable& buffers,
                        const MemoryPlan& plan);

}  // namespace coda
