// What an op costs: for the roofline, MFU, --dry-run, --print-schedule and the timing dump.
#pragma once

#include "kernels/ops.h"

namespace coda {

struct Cost {
    double flops = 0;  // multiply and add counted as two; matrix products and causal attention (half the square), plus
                       // the arithmetic per element of ops that have no product
    double bytes = 0;  // every operand once: In read, Out written, InOut both. Scratch is not counted
};

Cost cost(const Op& op);

}  // namespace coda
