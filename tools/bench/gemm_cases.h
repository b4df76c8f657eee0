// GEMM ops to measure and to test: operands with realistic contents, and the shapes of the benchmark's presets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/hopper/sm90/descriptor.h"
#include "kernels/ops.h"

namespace coda::bench {

enum class Fill {
    nothing,    // written by the op
    normal,     // scale * N(0, 1)
    integers,   // whole numbers in [-scale, scale]
    positive,   // scale * uniform in [0.5, 1.5)
    ones,       // scale
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

struct Shape {
    std::string
        program;  // name of an op; with rstd LinearRstd...; Linear in its dgrad form LinearDgrad, in fp32 LinearF32
    std::int64_t m, n, k;
};

/// An op whose operands are buffers 0, 1, ... of `buffers`. bytes: what its operands are, each counted once per access.
struct GemmCase {
    Shape shape;
    Op op;
    std::vector<Buffer> buffers;
    View a, b;
    hopper::Major major_a = hopper::Major::k, major_b = hopper::Major::k;
    bool f32_out = false;

    double flops() const {
        return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
    }
    double bytes() const;
};

struct CaseOptions {
    std::int64_t head_dim = 64;
    std::int64_t vocab = 0;   // 0: N
    bool integers = false;    // operands of the product are small whole numbers, so that it is exact
    bool accumulate = false;  // results that can be added to are
    bool optionals = false;   // with what an op may do without: factors of all, of rows, of columns; y, n
    bool evaluation = false;  // without what only a backward pass reads, where that is optional
    double distance = 1;      // size of the target logits: how far from the logits, of size 1, they are
    std::int64_t gap = 0;     // elements between rows of every matrix (a multiple of 8)
};

/// Throws Error for an unknown program.
GemmCase make_case(const Shape& shape, const CaseOptions& options = {});

/// "llama1b" (M 32768), "llama8b" (M 16384) or "square". Throws Error for another name.
std::vector<Shape> preset(const std::string& name);

}  // namespace coda::bench
