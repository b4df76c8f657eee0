// A gradient of the residual stream whose rows have mean 0. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// dx -= mean of its row. Where the embedding centres its rows (Embed), this is the way back through the centring.
struct CentreRows {
    InOut<Matrix> dx;  // (M, d) storage

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "CentreRows";
    static constexpr auto operands = fields(field("dx", &CentreRows::dx));

    double flops() const { return 2 * static_cast<double>(dx.count()); }
};

}  // namespace coda
