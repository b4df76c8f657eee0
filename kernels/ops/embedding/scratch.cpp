#include <algorithm>

#include "kernels/ops/embedding/op.h"

namespace coda {

std::int64_t EmbedBackward::scratch_bytes() const {
    if (dx.dtype != DType::bf16) return 0;
    // Counters, and (token, row) pairs twice, for a sort that is not in place.
    return 256 + 2 * round_up(2 * std::min(tokens.cols, kSortedRows) * size_of(DType::i32), 256);
}

}  // namespace coda
