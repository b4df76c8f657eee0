// What an op costs: for the roofline, MFU, --dry-run, --print-schedule and the timing dump.
#pragma once

#include "kernels/ops.h"

namespace coda {

/// flops, a multiply and an add counted as two, any other arithmetic function as one:
///   GEMM programs         2 M N K, the epilogue not counted, so that MFU means what it usually does
///   Attention             2 M T H hd: Q Kᵀ and P V over half the square of the causal mask; softmax not counted and
///                         document masks ignored
///   attention backward    2.5 times that: five products where forward has two, Q Kᵀ being recomputed
///   Embed                 2 an element (square, sum)
///   TargetLogit           2 an element of a
///   FinishRstd, FinishCrossEntropy, FinishRowSum, FinishColumnSum, ReduceLoss, EmbedBackward   1 an element summed
///   GradNorm              2 an element
///   AdamW                 16 a parameter
/// bytes: every operand once, In read, Out written, InOut both; a table that rows are gathered from or scattered to
/// counts with at most one row a token, the exponentials of FinishCrossEntropy with one element a row. Scratch is not
/// counted.
struct Cost {
    double flops = 0;
    double bytes = 0;
};

Cost cost(const Op& op);

Work work_of(const Op& op);

}  // namespace coda
