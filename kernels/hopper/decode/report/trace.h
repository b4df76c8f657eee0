// Time stamps of one step of the fused decode kernel: when each warp of each SM came to an op, and when it had the
// first of what it needs there. It is done when it comes to the next one. Host and device, without CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/hopper/decode/plan/decode_plan.h"

namespace coda::hopper::decode {

/// ready: a consumer has its input (in attention, whose input comes by block: it is at its first tile), an epilogue
/// warp the sums of its first tile, the producer room for its first stage. A warp without work in the op has none.
enum class Stamp : std::int32_t { begin, ready };
inline constexpr int kStamps = 2, kWarps = kThreads / 32;

CODA_HD std::int64_t stamp_index(int op, int sm, int grid, int warp, Stamp stamp) {
    return ((std::int64_t{op} * grid + sm) * kWarps + warp) * kStamps + static_cast<int>(stamp);
}

/// Nanoseconds, by stamp_index; 0: no such time.
using StepTrace = std::vector<std::uint64_t>;

/// An op over all SMs, in microseconds.
struct OpTimes {
    double wall = 0;    // from the last result of the op before to the last one of this
    double wait = 0;    // of a consumer warp with work, for its input: mean
    double work = 0;    // of an SM, from the first warp that had its input to the last that was done: mean
    double finish = 0;  // from the last consumer warp of all to the last result
};
/// By op. The first op counts from its first stamp.
std::vector<OpTimes> op_times(const StepTrace& trace, const DecodePlan& plan);

/// Means over all ops of a kind, as a table for people.
std::string op_table(const StepTrace& trace, const DecodePlan& plan);

/// In Chrome's trace format (chrome://tracing, ui.perfetto.dev): a process per SM, a thread per warp, its ops as
/// "wait" and as work.
std::string chrome_trace(const StepTrace& trace, const DecodePlan& plan);

}  // namespace coda::hopper::decode
