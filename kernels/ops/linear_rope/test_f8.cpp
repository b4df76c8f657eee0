// LinearRope of FP8 factors against its formula in plain fp64 loops, on the same 8-bit operands.
#include "kernels/ops/linear_rope/test_expected.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearRope of FP8 operands: the factor, the bias or the norm, then the rotation of the rotated heads") {
    const bool has_bias = GENERATE(false, true), norms = !has_bias && GENERATE(false, true);
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
                      .gain = norms ? in.buffers.random(DType::f32, 2, kHead, -2, 2) : View{},
                      .positions = in.buffers.indices(positions),
                      .rope = rope,
                      .out = in.out(DType::bf16, shape.m, shape.n),
                      .pre = {},
                      .rho = {},
                      .rotated = (2 * shape.n / kHead + 2) / 3 * kHead,
                      .head_dim = kHead,
                      .queries = kHead,
                      .eps = kHeadEps};
        if (norms) {
            op.pre = in.out(DType::bf16, shape.m, op.rotated);
            op.rho = in.out(DType::f32, op.rotated / kHead, shape.m);
        }
        in.run(op);
        // |cos|, |sin| <= 1. The terms of a rotation may cancel.
        const double absolute =
            2 * in.product.error + 4 * epsilon(DType::f32) * (largest(in.product.acc) + (has_bias ? 2 : 0));
        check_rope(op, positions, in, DType::f32, absolute, in.product);
        op.rstd = in.rstd(DType::f32, shape.m);
        CHECK_THROWS_WITH(in.run(op), Catch::Contains("rstd must be absent"));
    }
}
