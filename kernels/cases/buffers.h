// Operands for an op that runs by itself: views of buffers with realistic contents. Host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/operand.h"
#include "kernels/math/int4.h"

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
    int4,       // i32 units of kernels/math/int4.h; rows are whole units apart
};

/// Word `index` of units, made of random bits: codes, or two scales of 2^-7 to 2 and of either sign. Random scales
/// would be infinite or NaN now and then.
CODA_HD std::int32_t int4_word(std::int64_t index, std::uint32_t random) {
    const bool codes = index % kInt4UnitWords < kInt4CodeWords;
    return static_cast<std::int32_t>(codes ? random : (random & 0x83ff83ffu) | 0x3c003c00u);
}

struct Buffer {
    const char* name;
    View view;
    Fill fill;
    double scale;
    Access access;
};

}  // namespace coda::cases
