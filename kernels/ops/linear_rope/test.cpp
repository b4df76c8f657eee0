// LinearRope against its formula in plain fp64 loops.
#include "kernels/ops/linear_rope/test_expected.h"

using namespace coda;
using namespace coda::test;

namespace {

enum class Adds { nothing, bias, norm };

}  // namespace

TEST_CASE("LinearRope adds the bias, or norms q and k heads, and rotates their pairs by their position's angle") {
    const Adds adds = GENERATE(Adds::nothing, Adds::bias, Adds::norm);
    const auto check = [adds](auto op, Inputs& in, DType storage, DType compute, const ProgramShape& shape,
                              const auto& factor) {
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        constexpr int kPositions = 11;
        const View rope = in.in(compute, kPositions, kHead);
        std::vector<int> positions;
        for (std::int64_t i = 0; i < shape.m; ++i) positions.push_back(static_cast<int>((5 * i + 2) % kPositions));
        op.positions = in.buffers.indices(positions);
        op.rope = rope;
        op.out = in.out(storage, shape.m, shape.n);
        op.rotated = (2 * shape.n / kHead + 2) / 3 * kHead;
        op.head_dim = kHead;
        const bool has_bias = adds == Adds::bias, norms = adds == Adds::norm;
        if (has_bias) op.bias = in.buffers.random(compute, 1, shape.n, -2, 2);
        if (norms) {
            op.gain = in.buffers.random(compute, 2, kHead, -2, 2, kHead + kGap);
            op.queries = op.rotated / kHead / 2 * kHead;
            op.eps = kHeadEps;
            op.pre = in.out(storage, shape.m, op.rotated);
            op.rho = in.out(compute, op.rotated / kHead, shape.m);
        }
        in.run(op);
        // |cos|, |sin| <= 1 and rstd <= 2, so the errors of two accumulators grow at most fourfold; their terms, and a
        // bias up to 2, may cancel.
        const double absolute = 4 * product.error + 4 * epsilon(compute) * (largest(product.acc) + (has_bias ? 2 : 0));
        check_rope(op, positions, in, compute, absolute,
                   [&](std::int64_t i, std::int64_t j) { return product(i, j) * factor(i); });
        if (!norms) return;
        const Values first = in.buffers.values(op.out);
        op.pre = {};
        op.rho = {};
        in.run(op);
        CHECK(in.buffers.values(op.out) == first);
    };
    for_each_program_case([&](DType storage, DType compute, const ProgramShape& shape) {
        plain_and_rstd<LinearRope>(storage, compute, shape, [&](auto op, Inputs& in, const auto& factor) {
            check(op, in, storage, compute, shape, factor);
        });
    });
}

TEST_CASE("LinearRope takes a bias or the norm of heads, and stores z and rho only with the norm") {
    const ProgramShape shape{7, 24, 33, 5};
    Inputs in(DType::f32, shape, WeightLayout::out_in);
    LinearRope op;
    op.a = in.a;
    op.w = in.w;
    op.positions = in.buffers.indices(std::vector<int>(7, 0));
    op.rope = in.in(DType::f32, 1, kHead);
    op.out = in.out(DType::f32, shape.m, shape.n);
    op.rotated = 2 * kHead;
    op.head_dim = kHead;
    op.rho = in.out(DType::f32, 2, shape.m);
    CHECK_THROWS_WITH(in.run(op), "LinearRope: pre and rho come with gain, which is missing");
    op.gain = in.in(DType::f32, 2, kHead);
    op.queries = 3 * kHead;
    CHECK_THROWS_WITH(in.run(op), "LinearRope: queries 24 must be whole heads of 8 within 16 columns");
    op.queries = kHead;
    op.bias = in.in(DType::f32, 1, shape.n);
    CHECK_THROWS_WITH(in.run(op), "LinearRope: takes a bias or gain, not both");
}
