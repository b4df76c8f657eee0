// What a consumer warp keeps of attention in its input memory: a block's exponentials, the last positions, queries; and
// after its last block, over all of these, its partial sums for the epilogue warps. Host and device.
#pragma once

#include <algorithm>

#include "kernels/hopper/decode/plan/attention_work.h"
#include "kernels/hopper/decode/plan/fragment.h"

namespace coda::hopper::decode {

struct AttentionInput {
    /// (positions, kMaxGroup) fp32.
    static constexpr int kExponentials = 0;
    /// (kMaxGroup) fp32: what earlier sums are multiplied by.
    CODA_HD static constexpr int factors(int head_dim) { return 4 * kMaxGroup * block_positions(head_dim); }
    /// (kept_rows, 2, head_dim) bf16: key and value of the newest position, and of those before it.
    CODA_HD static constexpr int rows(int head_dim) { return factors(head_dim) + 4 * kMaxGroup; }
    /// shares: DecodePlan::shares_caches().
    CODA_HD static constexpr int kept_rows(bool shares) { return shares ? kOctet : 2; }
    /// Of the group's query heads, bf16, query_pitch apart.
    CODA_HD static constexpr int queries(int head_dim, bool shares) {
        return rows(head_dim) + kept_rows(shares) * 2 * 2 * head_dim;
    }
    CODA_HD static constexpr int query_pitch(int head_dim) { return input_pitch_of(head_dim); }

    /// Of the warp's partial sums, at 0: a sum per query head and column, then the heads' maxima and their totals.
    CODA_HD static constexpr int partial_floats(int group, int head_dim) { return group * head_dim + 2 * kMaxGroup; }

    static constexpr int bytes(int group, int head_dim, bool shares) {
        return std::max(queries(head_dim, shares) + group * query_pitch(head_dim), 4 * partial_floats(group, head_dim));
    }
};

}  // namespace coda::hopper::decode
