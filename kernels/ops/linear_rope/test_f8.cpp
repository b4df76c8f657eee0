// LinearRope of FP8 factors against its formula in plain fp64 loops, on the same 8-bit operands.
#include "tests/kernels/gemm_programs.h"

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
                      .eps = 0.5};
        if (norms) {
            op.pre = in.out(DType::bf16, shape.m, op.rotated);
            op.rho = in.out(DType::f32, op.rotated / kHead, shape.m);
        }
        in.run(op);
        // |cos|, |sin| <= 1. The terms of a rotation may cancel.
        const double absolute =
            2 * in.product.error + 4 * epsilon(DType::f32) * (largest(in.product.acc) + (has_bias ? 2 : 0));
        const auto z = [&](std::int64_t i, std::int64_t j) {
            return in.product(i, j) + (has_bias ? in(op.bias, 0, j) : 0);
        };
        const auto rho = [&](std::int64_t i, std::int64_t head) {
            double squares = 0;
            for (std::int64_t j = head * kHead; j < (head + 1) * kHead; ++j) squares += z(i, j) * z(i, j);
            return 1 / std::sqrt(squares / kHead + op.eps);
        };
        const auto turned = [&](std::int64_t i, std::int64_t j) {  // what is rotated
            if (!norms || j >= op.rotated) return z(i, j);
            return in(op.gain, j < op.queries ? 0 : 1, j % kHead) * rho(i, j / kHead) * z(i, j);
        };
        // An error of z grows by at most 2 gain rho, 2 2 1.42, in the norm.
        check_close("out", in.buffers, op.out, DType::f32, (norms ? 6 : 1) * absolute,
                    [&](std::int64_t i, std::int64_t j) {
                        const double value = turned(i, j);
                        if (j >= op.rotated) return value;
                        const std::int64_t pair = j % kHead / 2;
                        const int position = positions[static_cast<std::size_t>(i)];
                        const double cosine = in(rope, position, 2 * pair), sine = in(rope, position, 2 * pair + 1);
                        const double partner = turned(i, j % 2 == 0 ? j + 1 : j - 1);
                        return j % 2 == 0 ? value * cosine - partner * sine : value * cosine + partner * sine;
                    });
        if (norms) {
            check_close("pre", in.buffers, op.pre, DType::f32, absolute, z);
            check_close("rho", in.buffers, op.rho, DType::f32, 2 * absolute,
                        [&](std::int64_t head, std::int64_t i) { return rho(i, head); });
        }
        op.rstd = in.rstd(DType::f32, shape.m);
        CHECK_THROWS_WITH(in.run(op), Catch::Contains("rstd must be absent"));
    }
}
