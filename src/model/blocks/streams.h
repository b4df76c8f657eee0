// What flows into, between and out of blocks.
#pragma once

#include "kernels/core/operand.h"

namespace coda {

/// Inputs of a micro-batch, as HostViews has them.
struct BatchInputs {
    View tokens, targets;  // (1, M) i32; a negative target is ignored
    View positions;        // (1, M) i32, in the sequence, or in the document under document_mask
    View doc_start;        // (1, M) i32, only under document_mask
    View alpha;            // 1 / (valid targets of the whole optimizer step)
    View rope;             // (seq_len, hd), see rope_table
};

/// The residual stream between two blocks, and 1/rms of its rows, which the norm of the next block applies.
struct Stream {
    View x;     // (M, d) storage
    View rstd;  // (1, M) statistic
};

/// What a forward pass leaves behind.
enum class Keep : std::uint8_t {
    nothing,     // an evaluation
    activations  // what the backward pass reads
};

}  // namespace coda
