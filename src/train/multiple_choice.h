// Multiple-choice evaluation: which completion of a context does the model find likeliest?
//
// Every (context, completion) is one row of an evaluate pass. With the row's tokens x_0 ... x_(L-1), position t of the
// row holds x_t and has the target x_(t+1); only targets that are completion tokens count, the first of which the last
// context token predicts. Let S be the sum of their losses (nats) and n their number:
//   acc       part of the examples whose right completion has the lowest S
//   acc_norm  part of the examples whose right completion has the lowest S / n; llm.c's measure. (EleutherAI's
//             harness, whose names these are, divides by the characters of the completion instead.)
// The first of equal completions counts. A loss that is not finite never wins.
//
// A row longer than seq_len + 1 tokens, one more than there are positions since the last token is only a target, loses
// the first tokens of its context, each completion's row by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/io/evaluation_shard.h"
#include "src/io/loader.h"

namespace coda {

struct MultipleChoiceResult {
    double acc = 0, acc_norm = 0;
    std::int64_t examples = 0;
    std::int64_t rows = 0;       // completions of those examples
    std::int64_t truncated = 0;  // rows that lost a part of their context
};

/// The losses of all positions of a micro-batch, in their order; 0 where the target is ignored. The batch does not say
/// where documents begin.
using TokenLosses = std::function<std::vector<double>(const TokenBatch&)>;

/// Evaluates the first `limit` examples (0: all) in micro-batches of `rows` rows of `seq_len` tokens. Rows of an
/// example may fall into two micro-batches; unused rows have ignored targets only.
MultipleChoiceResult evaluate_multiple_choice(const EvaluationShard& shard, std::int64_t limit, std::int64_t rows,
                                              std::int64_t seq_len, const TokenLosses& losses_of);

}  // namespace coda
