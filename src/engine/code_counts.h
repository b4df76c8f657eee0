// The codes of an FP8 tensor as an executor counts them, by CountF8.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/ops.h"
#include "src/core/memory_plan.h"

namespace coda {

/// Elements as far as they were counted, those at the end of the range, and zeros.
struct CodeCounts {
    std::int64_t elements = 0, saturated = 0, zeros = 0;
    bool operator==(const CodeCounts&) const = default;
};

/// What CountF8 writes.
using CountedPair = std::array<std::int32_t, 2>;

/// Where an executor keeps a CountedPair outside the arena: its address follows the addresses of the plan's buffers.
View counted_pair_after(const MemoryPlan& plan);

/// Counts every row of a tensor, or of one that has more than 2^30 elements every other, every third, ...
CountF8 count_op(const View& codes, const View& counts);
CodeCounts code_counts(const CountF8& op, const CountedPair& counts);

}  // namespace coda
