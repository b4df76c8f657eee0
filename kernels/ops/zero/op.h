// A buffer of zeros. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// out = 0.
struct Zero {
    Out<Matrix> out;

    static constexpr Traits traits{Trait::flops, Trait::tolerance};
    static constexpr const char* name = "Zero";
    static constexpr auto operands = fields(field("out", &Zero::out));

    double flops() const { return 0; }
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }
};

}  // namespace coda
