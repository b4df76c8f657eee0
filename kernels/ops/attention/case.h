// The attention ops of one shape, on one set of buffers, for the benchmark and the tests. Host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/attention/op.h"

namespace coda::cases {

struct AttentionCaseShape {
    std::int64_t batch = 1, seq_len = 0, heads = 1, kv_heads = 1, head_dim = 64;
    bool documents = false;
    std::int64_t gap = 0;  // elements between the rows of all matrices but rope, gain, dgain; a multiple of 8

    std::int64_t rows() const { return batch * seq_len; }
    std::int64_t slots() const { return heads + 2 * kv_heads; }
};

enum AttentionBuffer {
    kQkv,
    kO,
    kLse,
    kDocStart,
    kDout,
    kDqkv,
    kScratch,
    kDelta,
    kPositions,
    kRope,
    kDot,
    kRstd,
    kNextTile,
    kGain,
    kPre,
    kRho,
    kDGain,
    kBias,
    kDBias,
    kScale,  // kScale to kAmax: what add_codes adds
    kCodes,
    kTransposedCodes,
    kAmax
};

/// Operands are buffers 0, 1, ... of `buffers`, in the order of AttentionBuffer.
struct AttentionCase {
    Attention forward;
    AttentionBackward backward;       // from o
    AttentionBackward rope_backward;  // from delta, with rope
    AttentionBackward norm_backward;  // the same with the norm of heads. Its eps makes dot's share of q and k large
    AttentionBackward bias_backward;  // rope_backward with a bias
    AttentionBackward unrotated_backward;  // the same without rope
    std::vector<View> buffers;
};

/// doc_start (M) of packed documents whose lengths are log-normal with this mean and a deviation of 1 in the logarithm;
/// the end of a sequence cuts a document. The same for the same arguments.
std::vector<std::int32_t> packed_documents(std::int64_t batch, std::int64_t seq_len, double mean);

AttentionCase make_attention(const AttentionCaseShape& shape, const Precision& precision);

/// Adds buffers for the codes of kO or kDqkv, without gaps between their rows.
Rounded add_codes(AttentionCase& made, AttentionBuffer of, DType format);

}  // namespace coda::cases
