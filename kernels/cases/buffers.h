// Operands for an op that runs by itself: views of buffers with realistic contents. Host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/operand.h"

namespace coda::cases {

enum class Fill {
    nothing,    // written by the op
    normal,     // scale * N(0, 1)
    integers,   // whole numbers in [-scale, scale]
    positive,   // scale * uniform in [0.5, 1.5)
    ones,       // scale; i32 too
    angles,     // pairs cos, sin of a uniform angle
    positions,  // i32 row % scale
    targets,    // i32 in [-1, scale)
};

struct Buffer {
    const char* name;
    View view;
    Fill fill;
    double scale;
    Access access;
};

}  // namespace coda::cases
