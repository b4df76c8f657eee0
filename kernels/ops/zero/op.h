// A buffer of zeros. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/field.h"

namespace coda {

/// out = 0.
struct Zero {
    Out<Matrix> out;

    static constexpr const char* name = "Zero";
    static constexpr auto operands = std::tuple{field("out", &Zero::out)};
};

}  // namespace coda
