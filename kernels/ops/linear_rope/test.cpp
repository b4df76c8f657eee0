// LinearRope against its formula in plain fp64 loops.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearRope adds the bias and rotates pairs of the rotated heads by their position's angle") {
    const bool has_bias = GENERATE(false, true);
    const auto check = [has_bias](auto op, Inputs& in, DType storage, DType compute, const ProgramShape& shape,
                                  const auto& factor) {
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        constexpr int kPositions = 11;
        const View rope = in.in(compute, kPositions, kHead);
        std::vector<int> positions;
        for (std::int64_t i = 0; i < shape.m; ++i) positions.push_back(static_cast<int>((5 * i + 2) % kPositions));
        op.positions = in.buffers.indices(positions);
        op.rope = rope;
        if (has_bias) op.bias = in.buffers.random(compute, 1, shape.n, -2, 2);
        op.out = in.out(storage, shape.m, shape.n);
        op.rotated = (2 * shape.n / kHead + 2) / 3 * kHead;
        op.head_dim = kHead;
        in.run(op);
        const auto z = [&](std::int64_t i, std::int64_t j) {
            return product(i, j) * factor(i) + (has_bias ? in(op.bias, 0, j) : 0);
        };
        // |cos|, |sin| <= 1 and rstd <= 2, so the errors of two accumulators grow at most fourfold; their terms, and a
        // bias up to 2, may cancel.
        const double absolute = 4 * product.error + 4 * epsilon(compute) * (largest(product.acc) + (has_bias ? 2 : 0));
        check_close("out", in.buffers, op.out, compute, absolute, [&](std::int64_t i, std::int64_t j) {
            const double value = z(i, j);
            if (j >= op.rotated) return value;
            const std::int64_t pair = j % kHead / 2;
            const int position = positions[static_cast<std::size_t>(i)];
            const double cosine = in(rope, position, 2 * pair), sine = in(rope, position, 2 * pair + 1);
            const double partner = z(i, j % 2 == 0 ? j + 1 : j - 1);
            return j % 2 == 0 ? value * cosine - partner * sine : value * cosine + partner * sine;
        });
    };
    for_each_program_case([&](DType storage, DType compute, const ProgramShape& shape) {
        plain_and_rstd<LinearRope>(storage, compute, shape, [&](auto op, Inputs& in, const auto& factor) {
            check(op, in, storage, compute, shape, factor);
        });
    });
}
