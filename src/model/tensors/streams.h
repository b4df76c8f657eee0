// What flows into, between and out of blocks.
#pragma once

#include "kernels/core/operand.h"
#include "src/core/buffers.h"

namespace coda {

/// Inputs of a micro-batch, as HostViews has them.
struct BatchInputs {
    View tokens, targets;  // (1, M) i32; a negative target is ignored
    View positions;        // (1, M) i32, in the sequence, or in the document under document_mask
    View doc_start;        // (1, M) i32, the first key that a token sees; only under document_mask or in a window
    View alpha;            // 1 / (valid targets of the whole optimizer step)
    View rope;             // (seq_len, hd), see rope_table
    View place;            // (1, 3) i32, only of a prefill: where its keys and values go (StoreKeyValue)
    View lengths;          // (1, M) i32, only of a decode pass: its rows are the newest tokens (DecodeAttention)
};

/// The cache of keys and values of one layer, for S sequences: (S Hk C, hd) storage each.
struct KeyValueCache {
    View keys, values;
    std::int64_t context = 0;    // C
    std::int64_t rows_each = 1;  // R: rows of a sequence in a decode pass
};

/// The M = R S rows of a decode pass: a token each, row m of sequence m / R. ChooseToken brings them from one pass to
/// the next.
struct SequenceRows {
    View token;       // (1, M) i32, which the pass takes: the newest of its sequence, or one that is guessed after it
    View positions;   // (1, M) i32, of that token
    View lengths;     // (1, M) i32, tokens of the sequence with that one; 0: idle
    View state;       // (1, M) i32, RowState
    View status;      // (1, M) i32
    View limits;      // (1, M) i32
    View options;     // (1, 8 M) i32
    View end_tokens;  // (M, kMostEndTokens) i32
    View seen;        // (M, words of V bits) i32
    View logits;      // (M, V padded) storage
};
inline constexpr std::int64_t kMostEndTokens = 32;

/// The residual stream between two blocks, and 1/rms of its rows, which the norm of the next block applies.
struct Stream {
    View x;     // (M, d) storage
    View rstd;  // (1, M) statistic

    /// Cuts it down to the first `rows` tokens.
    void keep_rows(std::int64_t rows) {
        x = x.row_slice(0, rows);
        rstd = narrowed(rstd, rows);
    }
};

}  // namespace coda
