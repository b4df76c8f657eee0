// The cost of an op, for the roofline, MFU, --dry-run, --print-schedule and the timing dump.
#pragma once

#include "kernels/ops.h"

namespace coda {

/// flops: a multiply and an add count as two, any other arithmetic function as one.
///   GEMM programs         2 M N K, the epilogue not counted, so that MFU means what it usually does
///   Attention             2 M T H hd: Q Kᵀ and P V over half the square of the causal mask; softmax not counted and
///                         document masks ignored. With a window of W keys W T - W²/2 pairs in place of T²/2
///   attention backward    2.5 times that: five GEMMs where forward has two, as Q Kᵀ is recomputed
///   DecodeAttention       4 S C H hd: both products over a full context, or over a shorter window
///   StoreKeyValue         0
///   Embed                 2 per element (square, sum)
///   TargetLogit           2 per element of a
///   FinishRstd, FinishCrossEntropy, FinishRowSum, FinishColumnSum, ReduceLoss, EmbedBackward   1 per summed element
///   ExactCrossEntropy     0: it computes nothing in a run whose rows are not flagged
///   QuantiseF8, CountF8   2 per element
///   UpdateScales          1 per element of the history
///   SumSquares            2 per element
///   GradNorm              1 per sum of squares
///   AdamW                 16 per parameter
///   RoundWeights          1 per element
///   UnpackInt4            1 per element
/// bytes: every operand counts once; In is read, Out is written, InOut is both. Scratch is not counted. Of some
/// operands only a part counts:
///   a gathered or scattered table             at most one row per token
///   a cache of keys or values                 a full context of every sequence, or the rows of a prefill
///   history of UpdateScales                   all rows read and one written
///   codes of CountF8                          the rows that it counts
///   exponentials of FinishCrossEntropy        one element per row
///   operands of ExactCrossEntropy             only flags and targets
struct Cost {
    double flops = 0;
    double bytes = 0;
};

Cost cost(const Op& op);

Work work_of(const Op& op);

/// Whether it is a GEMM of FP8 operands, which tensor cores multiply at another rate.
bool multiplies_f8(const Op& op);

}  // namespace coda
