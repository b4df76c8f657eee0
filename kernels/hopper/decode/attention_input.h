// What a consumer warp keeps of attention in its input memory: queries, and a block's exponentials. Host and device.
#pragma once

#include "kernels/hopper/decode/attention_work.h"
#include "kernels/hopper/decode/fragment.h"

namespace coda::hopper::decode {

struct AttentionInput {
    /// Bytes from one query head to the next.
    CODA_HD static int query_pitch(int head_dim) { return input_pitch_of(head_dim); }
    /// (positions, kMaxGroup) fp32.
    CODA_HD static int exponentials(int head_dim) { return kMaxGroup * query_pitch(head_dim); }
    /// (kMaxGroup) fp32: what earlier sums are multiplied by.
    CODA_HD static int factors(int head_dim) {
        return exponentials(head_dim) + 4 * kMaxGroup * block_positions(head_dim);
    }
    CODA_HD static int bytes(int head_dim) { return factors(head_dim) + 4 * kMaxGroup; }
};

}  // namespace coda::hopper::decode
