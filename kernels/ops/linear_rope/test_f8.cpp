// LinearRope of FP8 factors against its formula in plain fp64 loops, on the same 8-bit operands.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearRope of FP8 operands: the factor, the bias, then the rotation of the rotated heads") {
    const bool has_bias = GENERATE(false, true);
    constexpr int kPositions = 11;
    for (const ProgramShape& shape : kProgramShapes) {
        INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k);
        F8Inputs in(shape);
        std::vector<int> positions;
        for (std::int64_t i = 0; i < shape.m; ++i) positions.push_back(static_cast<int>((5 * i + 2) % kPositions));
        const View rope = in.in(DType::f32, kPositions, kHead);
        LinearRope op{.a = in.a,
                      .w = {in.w, in.undo},
                      .rstd = {},
                      .bias = has_bias ? in.buffers.random(DType::f32, 1, shape.n, -2, 2) : View{},
                      .positions = in.buffers.indices(positions),
                      .rope = rope,
                      .out = in.out(DType::bf16, shape.m, shape.n),
                      .rotated = (2 * shape.n / kHead + 2) / 3 * kHead,
                      .head_dim = kHead};
        in.run(op);
        // |cos|, |sin| <= 1. The terms of a rotation may cancel.
        const double absolute =
            2 * in.product.error + 4 * epsilon(DType::f32) * (largest(in.product.acc) + (has_bias ? 2 : 0));
        const auto z = [&](std::int64_t i, std::int64_t j) {
            return in.product(i, j) + (has_bias ? in(op.bias, 0, j) : 0);
        };
        check_close("out", in.buffers, op.out, DType::f32, absolute, [&](std::int64_t i, std::int64_t j) {
            const double value = z(i, j);
            if (j >= op.rotated) return value;
            const std::int64_t pair = j % kHead / 2;
            const int position = positions[static_cast<std::size_t>(i)];
            const double cosine = in(rope, position, 2 * pair), sine = in(rope, position, 2 * pair + 1);
            const double partner = z(i, j % 2 == 0 ? j + 1 : j - 1);
            return j % 2 == 0 ? value * cosine - partner * sine : value * cosine + partner * sine;
        });
        op.rstd = in.rstd(DType::f32, shape.m);
        CHECK_THROWS_WITH(in.run(op), Catch::Contains("rstd must be absent"));
    }
}
