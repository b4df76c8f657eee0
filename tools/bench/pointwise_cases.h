// The pointwise ops at the sizes of a training step of llama1b, with the bytes that each must move.
#pragma once

#include <span>

#include "tools/bench/gemm_cases.h"

namespace coda::bench {

/// Operands are buffers 0, 1, ... of `buffers`.
struct PointwiseCase {
    std::string shape;
    Op op;
    std::vector<Buffer> buffers;
    std::vector<std::int32_t> tokens;  // contents of buffer 0, where given
    double bytes = 0;                  // read and written: cost(), but table rows once per token that occurs
};

struct NamedCase {
    const char* op;
    PointwiseCase (*make)();
};

std::span<const NamedCase> pointwise_cases();

}  // namespace coda::bench
