// The cost of an op, for the roofline, MFU, --dry-run, --print-schedule and the timing dump.
#pragma once

#include "kernels/ops.h"

namespace coda {

/// flops: a multiply and an add count as two, any other arithmetic function as one.
///   GEMM programs         2 M N K, the epilogue not counted, so that MFU means what it usually does
///   Attention             2 M T H hd: Q Kᵀ and P V over half the square of the causal mask; softmax not counted and
///                         document masks ignored
///   attention backward    2.5 times that: five GEMMs where forward has two, as Q Kᵀ is recomputed
///   DecodeAttention       4 S C H hd: both products over a full context
///   StoreKeyValue         0
///   Embed                 2 per element (square, sum)
///   TargetLogit           2 per element of a
///   FinishRstd, FinishCrossEntropy, FinishRowSum, FinishColumnSum, ReduceLoss, EmbedBackward   1 per summed element
///   ExactCrossEntropy     0: it computes nothing in a run whose rows are not flagged
///   QuantiseF8, CountF8   2 per element
///   UpdateScales          1 per element of the history
///   GradNorm              2 per element
///   AdamW                 16 per parameter
///   RoundWeights          1 per element
/// bytes: every operand once; In is read, Out is written, InOut is both. A table whose rows are gathered or scattered
/// counts with at most one row per token, a cache with a full context of every sequence or with the rows of a prefill,
/// the history of UpdateScales with all rows read and one written, the codes of CountF8 with the rows that it counts,
/// the exponentials of FinishCrossEntropy with one element per row, and of ExactCrossEntropy's operands flags and
/// targets alone. Scratch is not counted.
struct Cost {
    double flops = 0;
    double bytes = 0;
};

Cost cost(const Op& op);

Work work_of(const Op& op);

/// Whether it is a GEMM of FP8 operands, which tensor cores multiply at another rate.
bool multiplies_f8(const Op& op);

}  // namespace coda
