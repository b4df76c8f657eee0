// What a consumer warp keeps of attention in its input memory: queries, a block's exponentials, the last positions.
// Host and device.
#pragma once

#include "kernels/hopper/decode/plan/attention_work.h"
#include "kernels/hopper/decode/plan/fragment.h"

namespace coda::hopper::decode {

struct AttentionInput {
    /// Bytes from one query head to the next.
    CODA_HD static constexpr int query_pitch(int head_dim) { return input_pitch_of(head_dim); }
    /// (positions, kMaxGroup) fp32.
    CODA_HD static constexpr int exponentials(int head_dim) { return kMaxGroup * query_pitch(head_dim); }
    /// (kMaxGroup) fp32: what earlier sums are multiplied by.
    CODA_HD static constexpr int factors(int head_dim) {
        return exponentials(head_dim) + 4 * kMaxGroup * block_positions(head_dim);
    }
    /// (2, 2, head_dim) bf16: key and value of the newest position, and of the one before it.
    CODA_HD static constexpr int rows(int head_dim) { return factors(head_dim) + 4 * kMaxGroup; }
    CODA_HD static constexpr int bytes(int head_dim) { return rows(head_dim) + 4 * 2 * head_dim; }
};

}  // namespace coda::hopper::decode
