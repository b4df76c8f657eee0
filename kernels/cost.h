// The cost of an op, for the roofline, MFU, --dry-run, --print-schedule and the timing dump.
#pragma once

#include "kernels/ops.h"

namespace coda {

/// flops: a multiply and an add count as two, any other arithmetic function as one. A GEMM counts 2 M N K without its
/// epilogue, so that MFU means what it usually does. Each other op says its own number in op.h.
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
