// LinearSwiglu and LinearSwigluBackward of FP8 factors against their formulas in plain fp64 loops, on the same 8-bit
// operands.
#include "kernels/core/f8.h"
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Whether `copy`, transposed and in pairs, holds the same codes as `rows`.
bool same(const Inputs& in, const View& rows, const View& copy) {
    for (std::int64_t i = 0; i < rows.rows; ++i)
        for (std::int64_t j = 0; j < rows.cols; ++j)
            if (in(rows, i, j) != in(copy, j, paired_place(i))) return false;
    return in.buffers.gaps_untouched(copy);
}

constexpr double kZScale = 8;

/// The token at a place of a paired copy.
std::int64_t token_at(std::int64_t place) {
    const std::int64_t inside = place % 16;
    return place - inside + inside / 2 + inside % 2 * 8;
}

struct Case {
    Inputs in;
    LinearSwigluBackward op;

    Case(const ProgramShape& shape, double dz_scale) : in(DType::f32, shape, WeightLayout::out_in) {
        constexpr DType kF8 = DType::f8e4m3, kF32 = DType::f32;
        op.a = in.in(kF8, shape.m, shape.k);
        op.w = {in.in(kF8, shape.n, shape.k), in.buffers.scalar(kF32, 0.5)};
        op.z_scale = in.buffers.scalar(kF32, kZScale);
        op.z = in.buffers.random(kF8, 2 * shape.n, shape.m, -4 * kZScale, 4 * kZScale, shape.m + kGap);
        op.z.order = ColumnOrder::paired;
        op.dz = in.rounded(shape.m, 2 * shape.n, dz_scale, 0.125);
        op.dot = in.out(kF32, tiles(shape.n, shape.tile), shape.m);
        op.tile = shape.tile;
    }
};

LinearSwiglu forward(F8Inputs& in, const ProgramShape& shape, double scale) {
    return {.a = in.a,
            .w = {in.w, in.undo},
            .rstd = {},
            .z = in.rounded(shape.m, shape.n, 2 * scale, 0, /*by_rows=*/false),
            .y = in.rounded(shape.m, shape.n / 2, scale, 0)};
}

/// An element rounded once to f8e4m3, of a value that may be off by `error`: between the codes of both ends.
Expectation stored(double value, double error) {
    const double low = F8E4M3(static_cast<float>(value - error)), high = F8E4M3(static_cast<float>(value + error));
    return {(low + high) / 2, (high - low) / 2};
}

}  // namespace

TEST_CASE("LinearSwiglu of FP8 factors: z transposed, y by rows and transposed, each rounded once, and their amax") {
    for (const ProgramShape& shape : {ProgramShape{16, 8, 16, 2}, {48, 72, 32, 2}, {144, 544, 272, 2}})
        for (const double scale : {8.0, 4096.0}) {  // the second saturates
            INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k << ", scale " << scale);
            F8Inputs in(shape);
            const LinearSwiglu op = forward(in, shape, scale);
            in.run(op);
            const double z_error = in.product.error + kArithmetic * epsilon(DType::f32) * largest(in.product.acc);
            const auto z = [&](std::int64_t i, std::int64_t j) { return in.product(i, j); };
            double z_amax = 0, y_amax = 0;
            check_all("z_t", in.buffers, op.z.codes.columns, [&](std::int64_t j, std::int64_t place) {
                const double value = z(token_at(place), j);
                z_amax = std::max(z_amax, std::fabs(value));
                return stored(2 * scale * value, 2 * scale * z_error);
            });
            // y moves by no more than 1.1 |u| and |g| times what g and u do
            const double y_error = 2.2 * (1 + z_amax) * z_error;
            check_all("y", in.buffers, op.y.codes.rows, [&](std::int64_t i, std::int64_t j) {
                const double y = z(i, 2 * j) * sigmoid(z(i, 2 * j)) * z(i, 2 * j + 1);
                y_amax = std::max(y_amax, std::fabs(y));
                return stored(scale * y, scale * y_error);
            });
            CHECK(same(in, op.y.codes.rows, op.y.codes.columns));
            CHECK(in.buffers.gaps_untouched(op.z.codes.columns));
            CHECK(std::fabs(in(op.z.codes.amax, 0, 0) - z_amax) <= z_error);
            CHECK(std::fabs(in(op.y.codes.amax, 0, 0) - y_amax) <= y_error);

            for (const View& amax : {op.z.codes.amax, op.y.codes.amax})
                in.buffers.set(amax, 0, 0, 64);  // a larger one stays
            in.run(op);
            CHECK(in(op.z.codes.amax, 0, 0) == 64);
            CHECK(in(op.y.codes.amax, 0, 0) == 64);
        }
}

TEST_CASE("LinearSwiglu of FP8 factors refuses tokens that are no whole groups of 16, and copies in another order") {
    const ProgramShape ragged{24, 32, 16, 2};
    F8Inputs in(ragged);
    CHECK_THROWS_WITH(in.run(forward(in, ragged, 1)), Catch::Contains("LinearSwiglu: M is 24, not a multiple of 16"));
    const ProgramShape shape{32, 32, 16, 2};
    F8Inputs whole(shape);
    LinearSwiglu op = forward(whole, shape, 1);
    op.y.codes.rows.order = ColumnOrder::paired;
    CHECK_THROWS_WITH(whole.run(op),
                      Catch::Contains("operand y has its columns in pairs of each 16, expected natural"));
    op = forward(whole, shape, 1);
    op.z.codes.columns.order = ColumnOrder::natural;
    CHECK_THROWS_WITH(whole.run(op), Catch::Contains("operand z_t has its columns in natural order, expected pairs"));
    op.z.codes.columns = View{};
    CHECK_THROWS_WITH(whole.run(op), Catch::Contains("operand z_t is missing"));
}

TEST_CASE("LinearSwigluBackward of FP8 factors: dz by rows and transposed, amax, and the dot before rounding") {
    for (const ProgramShape& shape : {ProgramShape{16, 8, 16, 5}, {48, 72, 32, 128}, {144, 272, 272, 128}})
        for (const double dz_scale : {8.0, 4096.0}) {  // the second saturates
            INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k << ", scale " << dz_scale);
            Case made(shape, dz_scale);
            const Product product(made.in.buffers, made.op.a, made.op.w, WeightLayout::out_in);
            const Inputs& in = made.in;
            made.in.run(made.op);
            const auto z = [&](std::int64_t i, std::int64_t j) { return in(made.op.z, j, paired_place(i)) / kZScale; };
            const auto dy = [&](std::int64_t i, std::int64_t j) { return 0.5 * product(i, j); };
            const auto gate = [&](std::int64_t i, std::int64_t j) { return z(i, 2 * j); };
            const auto up = [&](std::int64_t i, std::int64_t j) { return z(i, 2 * j + 1); };
            const auto silu = [&](std::int64_t i, std::int64_t j) { return gate(i, j) * sigmoid(gate(i, j)); };
            const auto dz = [&](std::int64_t i, std::int64_t j) {
                const double sigma = sigmoid(gate(i, j / 2));
                if (j % 2 == 1) return dy(i, j / 2) * silu(i, j / 2);
                return dy(i, j / 2) * up(i, j / 2) * (sigma + silu(i, j / 2) * (1 - sigma));
            };
            const double error = 10 * product.error + kArithmetic * epsilon(DType::f32) * 8 * largest(product.acc);
            check_all("dz", in.buffers, made.op.dz.codes.rows,
                      [&](std::int64_t i, std::int64_t j) { return stored(dz_scale * dz(i, j), dz_scale * error); });
            CHECK(same(in, made.op.dz.codes.rows, made.op.dz.codes.columns));
            double amax = 0.125;
            for (std::int64_t i = 0; i < shape.m; ++i)
                for (std::int64_t j = 0; j < 2 * shape.n; ++j) amax = std::max(amax, std::fabs(dz(i, j)));
            CHECK(std::fabs(in(made.op.dz.codes.amax, 0, 0) - amax) <= error);
            check_partials("dot", in.buffers, made.op.dot, shape.tile, shape.n, 8 * error,
                           [&](std::int64_t i, std::int64_t j) {
                               return gate(i, j) * dz(i, 2 * j) + up(i, j) * dz(i, 2 * j + 1);
                           });

            LinearSwigluBackward in_place = made.op;
            in_place.dz.codes.rows = made.in.out(DType::f8e4m3, shape.m, 2 * shape.n);
            in_place.dz.codes.columns = made.op.z;
            made.in.buffers.set(made.op.dz.codes.amax, 0, 0, 2 * amax);  // a larger one stays
            made.in.run(in_place);
            CHECK((in.buffers.bits(in_place.dz.codes.rows) == in.buffers.bits(made.op.dz.codes.rows)));
            CHECK((in.buffers.bits(in_place.dz.codes.columns) == in.buffers.bits(made.op.dz.codes.columns)));
            CHECK(in(made.op.dz.codes.amax, 0, 0) == static_cast<double>(static_cast<float>(2 * amax)));
        }
}

TEST_CASE(
    "LinearSwigluBackward of FP8 factors refuses tokens that are no whole groups of 16, and copies in another order") {
    Case ragged({24, 16, 16, 128}, 1);
    CHECK_THROWS_WITH(ragged.in.run(ragged.op), Catch::Contains("M is 24, not a multiple of 16"));
    Case natural({32, 16, 16, 128}, 1);
    natural.op.dz.codes.columns.order = ColumnOrder::natural;
    CHECK_THROWS_WITH(natural.in.run(natural.op),
                      Catch::Contains("operand dz_t has its columns in natural order, expected pairs"));
    natural.op.dz.codes.columns.order = ColumnOrder::paired;
    natural.op.z.order = ColumnOrder::natural;
    CHECK_THROWS_WITH(natural.in.run(natural.op),
                      Catch::Contains("operand z_t has its columns in natural order, expected pairs"));
}
