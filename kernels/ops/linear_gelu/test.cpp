// GELU, and LinearGelu and LinearGeluBackward against their formulas in plain fp64 loops.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

namespace {

/// As published: with tanh, and with erf.
double reference(Gelu kind, double z) {
    if (kind == Gelu::exact) return 0.5 * z * (1 + std::erf(z / std::sqrt(2.0)));
    return 0.5 * z * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (z + 0.044715 * z * z * z)));
}
double slope(Gelu kind, double z) {
    constexpr double kStep = 1e-3;  // of a difference of fourth order, off by 1e-12
    const auto at = [&](double steps) { return reference(kind, z + steps * kStep); };
    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * kStep);
}

}  // namespace

TEST_CASE("GELU and its slope, both kinds, against tanh, erf and differences") {
    for (const Gelu kind : {Gelu::tanh, Gelu::exact}) {
        for (double z = -12; z <= 12; z += 0.03125) {
            const GeluValue<double> made = gelu(kind, z);
            INFO((kind == Gelu::tanh ? "tanh " : "exact ") << z);
            CHECK(std::fabs(made.y - reference(kind, z)) <= 1e-15 * (1 + std::fabs(z)));
            CHECK(std::fabs(made.slope - slope(kind, z)) <= 1e-10);
            CHECK(std::fabs(gelu(kind, static_cast<float>(z)).y - made.y) <= 4e-7 * (1 + std::fabs(z)));
        }
    }
    CHECK(std::fabs(gelu(Gelu::tanh, 1.0).y - gelu(Gelu::exact, 1.0).y) > 1e-4);
    // Below 0, where 1 + tanh has no digits left, y keeps its own.
    CHECK(gelu(Gelu::tanh, -6.0f).y ==
          Approx(-6 / (1 + std::exp(2 * std::sqrt(2 / std::acos(-1.0)) * (6 + 0.044715 * 216)))).epsilon(1e-5));
}

TEST_CASE("LinearGelu adds the bias and keeps z") {
    const Gelu kind = GENERATE(Gelu::tanh, Gelu::exact);
    const bool has_bias = GENERATE(false, true);
    const auto check = [=](auto op, Inputs& in, DType storage, DType compute, const ProgramShape& shape,
                           const auto& factor) {
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        op.kind = kind;
        if (has_bias) op.bias = in.buffers.random(compute, 1, shape.n, -2, 2);
        op.z = in.out(storage, shape.m, shape.n);
        op.y = in.out(storage, shape.m, shape.n);
        in.run(op);
        const double largest_z = 2 * largest(product.acc) + 2;
        check_close("z", in.buffers, op.z, compute, 2 * product.error + epsilon(compute) * largest_z,
                    [&](std::int64_t i, std::int64_t j) {
                        return product(i, j) * factor(i) + (has_bias ? in(op.bias, 0, j) : 0);
                    });
        // Of z as stored. The argument of exp carries a few roundings of its size, which y sees times |z| s (1 - s),
        // at most 1 up to |z| 10, where the argument is below 100.
        check_close("y", in.buffers, op.y, compute, 100 * epsilon(compute),
                    [&](std::int64_t i, std::int64_t j) { return reference(kind, in(op.z, i, j)); });
        auto only_y = op, only_z = op;  // either output may be absent; the other keeps its bits
        only_y.z = only_z.y = View{};
        only_y.y = in.out(storage, shape.m, shape.n);
        only_z.z = in.out(storage, shape.m, shape.n);
        in.run(only_y);
        in.run(only_z);
        CHECK((in.buffers.bits(only_y.y) == in.buffers.bits(op.y)));
        CHECK((in.buffers.bits(only_z.z) == in.buffers.bits(op.z)));
    };
    for_each_program_case([&](DType storage, DType compute, const ProgramShape& shape) {
        plain_and_rstd<LinearGelu>(storage, compute, shape, [&](auto op, Inputs& in, const auto& factor) {
            check(op, in, storage, compute, shape, factor);
        });
    });
}

TEST_CASE("LinearGeluBackward: dz, y, the partial dot without the bias, the bias' gradient without rstd; dz may be z") {
    const Gelu kind = GENERATE(Gelu::tanh, Gelu::exact);
    const bool has_bias = GENERATE(false, true), has_rstd = GENERATE(false, true);
    for_each_program_case([=](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::in_out);
        const Product product(in.buffers, in.a, in.w, WeightLayout::in_out);
        const View z = in.buffers.random(storage, shape.m, shape.n, -4, 4, shape.n + kGap);
        constexpr std::int64_t kRows = 3;  // of a tile of dbias
        const LinearGeluBackward op{.a = in.a,
                                    .w = in.w,
                                    .z = z,
                                    .rstd = has_rstd ? in.rstd(compute, shape.m) : View{},
                                    .bias = has_bias ? in.buffers.random(compute, 1, shape.n, -2, 2) : View{},
                                    .dz = in.out(storage, shape.m, shape.n),
                                    .y = in.out(storage, shape.m, shape.n),
                                    .dot = in.out(compute, tiles(shape.n, shape.tile), shape.m),
                                    .dbias = in.out(compute, tiles(shape.m, kRows), shape.n),
                                    .tile = shape.tile,
                                    .row_tile = kRows,
                                    .kind = kind};
        const Values before = in.buffers.values(z);
        const auto saved = [&](std::int64_t i, std::int64_t j) {
            return before[static_cast<std::size_t>(i * shape.n + j)];
        };
        in.run(op);
        const auto rstd = [&](std::int64_t i) { return has_rstd ? in(op.rstd, 0, i) : 1.0; };
        const auto bias = [&](std::int64_t j) { return has_bias ? in(op.bias, 0, j) : 0.0; };
        const auto gradient = [&](std::int64_t i, std::int64_t j) {
            return product(i, j) * gelu(kind, saved(i, j)).slope;
        };
        // |gelu'| <= 1.2, whose terms of at most 20 may cancel; rstd <= 2; |z - bias| <= 6.
        const double error = 1.2 * product.error + kArithmetic * epsilon(compute) * 20 * largest(product.acc);
        check_close("dz", in.buffers, op.dz, compute, 2 * error,
                    [&](std::int64_t i, std::int64_t j) { return rstd(i) * gradient(i, j); });
        check_close("y", in.buffers, op.y, compute, 16 * epsilon(compute),
                    [&](std::int64_t i, std::int64_t j) { return reference(kind, saved(i, j)); });
        check_partials("dot", in.buffers, op.dot, shape.tile, shape.n, 12 * error, [&](std::int64_t i, std::int64_t j) {
            return (saved(i, j) - bias(j)) * rstd(i) * gradient(i, j);
        });
        check_partials("dbias", in.buffers, op.dbias, kRows, shape.m, error,
                       [&](std::int64_t column, std::int64_t row) { return gradient(row, column); });

        LinearGeluBackward without_y = op;
        without_y.dz = in.out(storage, shape.m, shape.n);
        without_y.y = View{};
        in.run(without_y);
        CHECK((in.buffers.bits(without_y.dz) == in.buffers.bits(op.dz)));

        LinearGeluBackward in_place = op;
        in_place.dz = z;
        in_place.y = in.out(storage, shape.m, shape.n);
        in_place.dot = in.out(compute, tiles(shape.n, shape.tile), shape.m);
        in_place.dbias = in.out(compute, tiles(shape.m, kRows), shape.n);
        in.run(in_place);
        CHECK((in.buffers.bits(z) == in.buffers.bits(op.dz)));
        CHECK((in.buffers.bits(in_place.y) == in.buffers.bits(op.y)));
        CHECK((in.buffers.bits(in_place.dot) == in.buffers.bits(op.dot)));
        CHECK((in.buffers.bits(in_place.dbias) == in.buffers.bits(op.dbias)));
    });
}

TEST_CASE("y made again from z has the bits of the forward pass") {
    const Gelu kind = GENERATE(Gelu::tanh, Gelu::exact);
    for_each_program_case([=](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::out_in);
        const LinearGelu forward{.a = in.a,
                                 .w = in.w,
                                 .rstd = in.rstd(compute, shape.m),
                                 .bias = in.buffers.random(compute, 1, shape.n, -2, 2),
                                 .z = in.out(storage, shape.m, shape.n),
                                 .y = in.out(storage, shape.m, shape.n),
                                 .kind = kind};
        in.run(forward);
        const LinearGeluBackward backward{.a = in.a,
                                          .w = in.in(storage, shape.k, shape.n),
                                          .z = forward.z,
                                          .rstd = View{},
                                          .bias = forward.bias,
                                          .dz = in.out(storage, shape.m, shape.n),
                                          .y = in.out(storage, shape.m, shape.n),
                                          .dot = in.out(compute, tiles(shape.n, shape.tile), shape.m),
                                          .dbias = in.out(compute, tiles(shape.m, shape.tile), shape.n),
                                          .tile = shape.tile,
                                          .row_tile = shape.tile,
                                          .kind = kind};
        in.run(backward);
        CHECK((in.buffers.bits(backward.y) == in.buffers.bits(forward.y)));
    });
}
