// LinearSwigluF8 and LinearSwigluBackwardF8 against their formulas in plain fp64 loops, on the same 8-bit operands.
#include "kernels/core/float8.h"
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

namespace {

View paired(Inputs& in, std::int64_t rows, std::int64_t cols) {
    View view = in.out(DType::f8e4m3, rows, cols);
    view.order = ColumnOrder::paired;
    return view;
}

/// Whether `copy`, transposed and in pairs, holds the same codes as `rows`.
bool same(const Inputs& in, const View& rows, const View& copy) {
    for (std::int64_t i = 0; i < rows.rows; ++i)
        for (std::int64_t j = 0; j < rows.cols; ++j)
            if (in(rows, i, j) != in(copy, j, paired_place(i))) return false;
    return in.buffers.gaps_untouched(copy);
}

struct Case {
    Inputs in;
    LinearSwigluBackwardF8 op;

    Case(const ProgramShape& shape, double dz_scale) : in(DType::f32, shape, WeightLayout::out_in) {
        constexpr DType kF8 = DType::f8e4m3, kF32 = DType::f32;
        op.a = in.in(kF8, shape.m, shape.k);
        op.w = in.in(kF8, shape.n, shape.k);
        op.scale = in.buffers.scalar(kF32, 0.5);
        op.z = in.buffers.random(DType::bf16, shape.m, 2 * shape.n, -4, 4, 2 * shape.n + kGap);
        op.dz_scale = in.buffers.scalar(kF32, dz_scale);
        op.dz = in.out(kF8, shape.m, 2 * shape.n);
        op.dz_t = paired(in, 2 * shape.n, shape.m);
        op.dz_amax = in.buffers.scalar(kF32, 0.125);
        op.y_scale = in.buffers.scalar(kF32, 16);
        op.y_t = paired(in, shape.n, shape.m);
        op.dot = in.out(kF32, tiles(shape.n, shape.tile), shape.m);
        op.tile = shape.tile;
    }
};

/// An element rounded once to f8e4m3, of a value that may be off by `error`: between the codes of both ends.
Expectation stored(double value, double error) {
    const double low = F8E4M3(static_cast<float>(value - error)), high = F8E4M3(static_cast<float>(value + error));
    return {(low + high) / 2, (high - low) / 2};
}

}  // namespace

TEST_CASE("LinearSwigluF8: y of z as rounded, by rows and transposed, and its amax") {
    for (const ProgramShape& shape : {ProgramShape{16, 8, 16, 2}, {48, 72, 32, 2}, {144, 544, 272, 2}})
        for (const double y_scale : {8.0, 4096.0}) {  // the second saturates
            INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k << ", scale " << y_scale);
            F8Inputs in(shape);
            const std::int64_t pairs = shape.n / 2;
            LinearSwigluF8 op{.a = in.a,
                              .w = in.w,
                              .scale = in.scale,
                              .z = in.out(DType::bf16, shape.m, shape.n),
                              .y_scale = in.buffers.scalar(DType::f32, y_scale),
                              .y = in.out(DType::f8e4m3, shape.m, pairs),
                              .y_t = paired(in, pairs, shape.m),
                              .y_amax = in.buffers.scalar(DType::f32, 0)};
            in.run(op);
            check_close("z", in.buffers, op.z, DType::f32, in.product.error, in.product);
            double amax = 0;
            check_all("y", in.buffers, op.y, [&](std::int64_t i, std::int64_t j) {
                const double gate = in(op.z, i, 2 * j), up = in(op.z, i, 2 * j + 1);
                const double y = gate * sigmoid(gate) * up;
                amax = std::max(amax, std::fabs(y));
                return stored(y_scale * y, kArithmetic * epsilon(DType::f32) * y_scale * std::fabs(y));
            });
            CHECK(same(in, op.y, op.y_t));
            CHECK(std::fabs(in(op.y_amax, 0, 0) - amax) <= kArithmetic * epsilon(DType::f32) * amax);

            LinearSwigluF8 alone = op;  // z and y_t may be absent; y keeps its bits, and a larger amax stays
            alone.z = alone.y_t = View{};
            alone.y = in.out(DType::f8e4m3, shape.m, pairs);
            in.buffers.set(op.y_amax, 0, 0, 2 * amax);
            in.run(alone);
            CHECK((in.buffers.bits(alone.y) == in.buffers.bits(op.y)));
            CHECK(in(op.y_amax, 0, 0) == static_cast<double>(static_cast<float>(2 * amax)));
        }
}

TEST_CASE("LinearSwigluF8 refuses tokens that are no whole groups of 16 where it transposes, and only there") {
    const ProgramShape shape{24, 32, 16, 2};
    F8Inputs in(shape);
    LinearSwigluF8 op{.a = in.a,
                      .w = in.w,
                      .scale = in.scale,
                      .z = {},
                      .y_scale = in.scale,
                      .y = in.out(DType::f8e4m3, 24, 16),
                      .y_t = paired(in, 16, 24),
                      .y_amax = in.buffers.scalar(DType::f32, 0)};
    CHECK_THROWS_WITH(in.run(op), Catch::Contains("LinearSwigluF8: M is 24, not a multiple of 16"));
    op.y_t = View{};
    CHECK_NOTHROW(in.run(op));
    op.y.order = ColumnOrder::paired;
    CHECK_THROWS_WITH(in.run(op), Catch::Contains("operand y has its columns in pairs of each 16, expected natural"));
}

TEST_CASE("LinearSwigluBackwardF8: dz by rows and transposed, y transposed, amax, and the dot before rounding") {
    for (const ProgramShape& shape : {ProgramShape{16, 8, 16, 5}, {48, 72, 32, 128}, {144, 272, 272, 128}})
        for (const double dz_scale : {8.0, 4096.0}) {  // the second saturates
            INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k << ", scale " << dz_scale);
            Case made(shape, dz_scale);
            const Product product(made.in.buffers, made.op.a, made.op.w, WeightLayout::out_in);
            made.in.run(made.op);
            const Inputs& in = made.in;
            const View& z = made.op.z;
            const auto dy = [&](std::int64_t i, std::int64_t j) { return 0.5 * product(i, j); };
            const auto gate = [&](std::int64_t i, std::int64_t j) { return in(z, i, 2 * j); };
            const auto up = [&](std::int64_t i, std::int64_t j) { return in(z, i, 2 * j + 1); };
            const auto silu = [&](std::int64_t i, std::int64_t j) { return gate(i, j) * sigmoid(gate(i, j)); };
            const auto dz = [&](std::int64_t i, std::int64_t j) {
                const double sigma = sigmoid(gate(i, j / 2));
                if (j % 2 == 1) return dy(i, j / 2) * silu(i, j / 2);
                return dy(i, j / 2) * up(i, j / 2) * (sigma + silu(i, j / 2) * (1 - sigma));
            };
            const double error = 10 * product.error + kArithmetic * epsilon(DType::f32) * 8 * largest(product.acc);
            check_all("dz", in.buffers, made.op.dz,
                      [&](std::int64_t i, std::int64_t j) { return stored(dz_scale * dz(i, j), dz_scale * error); });
            CHECK(same(in, made.op.dz, made.op.dz_t));
            check_all("y_t", in.buffers, made.op.y_t, [&](std::int64_t j, std::int64_t place) {
                const std::int64_t inside = place % 16;
                const std::int64_t token = place - inside + inside / 2 + inside % 2 * 8;
                return stored(16 * silu(token, j) * up(token, j), 1e-4);
            });
            double amax = 0.125;
            for (std::int64_t i = 0; i < shape.m; ++i)
                for (std::int64_t j = 0; j < 2 * shape.n; ++j) amax = std::max(amax, std::fabs(dz(i, j)));
            CHECK(std::fabs(in(made.op.dz_amax, 0, 0) - amax) <= error);
            check_partials("dot", in.buffers, made.op.dot, shape.tile, shape.n, 8 * error,
                           [&](std::int64_t i, std::int64_t j) {
                               return gate(i, j) * dz(i, 2 * j) + up(i, j) * dz(i, 2 * j + 1);
                           });

            LinearSwigluBackwardF8 without_y = made.op;
            without_y.dz = made.in.out(DType::f8e4m3, shape.m, 2 * shape.n);
            without_y.y_t = without_y.y_scale = View{};
            made.in.buffers.set(made.op.dz_amax, 0, 0, 2 * amax);  // a larger one stays
            made.in.run(without_y);
            CHECK((in.buffers.bits(without_y.dz) == in.buffers.bits(made.op.dz)));
            CHECK(in(made.op.dz_amax, 0, 0) == static_cast<double>(static_cast<float>(2 * amax)));
        }
}

TEST_CASE("LinearSwigluBackwardF8 refuses tokens that are no whole groups of 16, and copies in another order") {
    Case ragged({24, 16, 16, 128}, 1);
    CHECK_THROWS_WITH(ragged.in.run(ragged.op), Catch::Contains("M is 24, not a multiple of 16"));
    Case natural({32, 16, 16, 128}, 1);
    natural.op.dz_t.order = ColumnOrder::natural;
    CHECK_THROWS_WITH(natural.in.run(natural.op),
                      Catch::Contains("operand dz_t has its columns in natural order, expected pairs"));
}
