#include "src/engine/code_counts.h"

#include <algorithm>

#include "kernels/core/integers.h"

namespace coda {

View counted_pair_after(const MemoryPlan& plan) {
    View view;
    view.buffer = static_cast<BufferId>(plan.offset.size());
    view.dtype = DType::i32;
    view.rows = 1;
    view.cols = view.ld = std::tuple_size_v<CountedPair>;
    return view;
}

CountF8 count_op(const View& codes, const View& counts) {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    return {.codes = codes, .counts = counts, .every = std::max<std::int64_t>(1, ceil_div(codes.count(), kMost))};
}

CodeCounts code_counts(const CountF8& op, const CountedPair& counts) {
    return {.elements = op.counted_rows() * op.codes.cols, .saturated = counts[0], .zeros = counts[1]};
}

}  // namespace coda
