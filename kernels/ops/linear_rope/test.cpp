// LinearRope against its formula in plain fp64 loops.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

namespace {

enum class Adds { nothing, bias, norm };

/// Of a norm: n = gain rho z with |gain| <= 2 and rho <= 1/sqrt(eps) = 1.42, and an error of z
/// grows by at most 2 gain rho.
constexpr double kEps = 0.5, kNormGrowth = 6;

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
            op.eps = kEps;
            op.pre = in.out(storage, shape.m, op.rotated);
            op.rho = in.out(compute, op.rotated / kHead, shape.m);
        }
        in.run(op);
        const auto z = [&](std::int64_t i, std::int64_t j) {
            return product(i, j) * factor(i) + (has_bias ? in(op.bias, 0, j) : 0);
        };
        const auto rho = [&](std::int64_t i, std::int64_t head) {
            double squares = 0;
            for (std::int64_t j = head * kHead; j < (head + 1) * kHead; ++j) squares += z(i, j) * z(i, j);
            return 1 / std::sqrt(squares / kHead + kEps);
        };
        const auto turned = [&](std::int64_t i, std::int64_t j) {  // what is rotated
            if (!norms || j >= op.rotated) return z(i, j);
            return in(op.gain, j < op.queries ? 0 : 1, j % kHead) * rho(i, j / kHead) * z(i, j);
        };
        // |cos|, |sin| <= 1 and rstd <= 2, so the errors of two accumulators grow at most fourfold; their terms, and a
        // bias up to 2, may cancel.
        const double absolute = 4 * product.error + 4 * epsilon(compute) * (largest(product.acc) + (has_bias ? 2 : 0));
        const double out_error = (norms ? kNormGrowth : 1) * absolute;
        check_close("out", in.buffers, op.out, compute, out_error, [&](std::int64_t i, std::int64_t j) {
            const double value = turned(i, j);
            if (j >= op.rotated) return value;
            const std::int64_t pair = j % kHead / 2;
            const int position = positions[static_cast<std::size_t>(i)];
            const double cosine = in(rope, position, 2 * pair), sine = in(rope, position, 2 * pair + 1);
            const double partner = turned(i, j % 2 == 0 ? j + 1 : j - 1);
            return j % 2 == 0 ? value * cosine - partner * sine : value * cosine + partner * sine;
        });
        if (!norms) return;
        check_close("pre", in.buffers, op.pre, compute, absolute, z);
        check_close("rho", in.buffers, op.rho, compute, 2 * absolute,
                    [&](std::int64_t head, std::int64_t i) { return rho(i, head); });
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
