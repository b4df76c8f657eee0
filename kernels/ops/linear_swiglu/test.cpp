// LinearSwiglu and LinearSwigluBackward against their formulas in plain fp64 loops.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearSwiglu keeps z and gates pairs of it") {
    const auto check = [](auto op, Inputs& in, DType storage, DType compute, const ProgramShape& shape,
                          const auto& factor) {
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        op.z = in.out(storage, shape.m, shape.n);
        op.y = in.out(storage, shape.m, shape.n / 2);
        in.run(op);
        const auto z = [&](std::int64_t i, std::int64_t j) { return product(i, j) * factor(i); };
        check_close("z", in.buffers, op.z, compute, 2 * product.error, z);
        // |dy/dg| <= 1.1 |u|, |dy/du| <= |g|, rstd <= 2; exp carries g's error. y is compared with the gate of z as
        // stored.
        const double scale = 2 * largest(product.acc);
        const double absolute = 2.1 * scale * 2 * epsilon(compute) * scale;
        check_close("y", in.buffers, op.y, compute, absolute, [&](std::int64_t i, std::int64_t j) {
            const double gate = in(op.z, i, 2 * j), up = in(op.z, i, 2 * j + 1);
            return gate * sigmoid(gate) * up;
        });
        auto only_y = op, only_z = op;  // either output may be absent; the other keeps its bits
        only_y.z = only_z.y = View{};
        only_y.y = in.out(storage, shape.m, shape.n / 2);
        only_z.z = in.out(storage, shape.m, shape.n);
        in.run(only_y);
        in.run(only_z);
        CHECK((in.buffers.bits(only_y.y) == in.buffers.bits(op.y)));
        CHECK((in.buffers.bits(only_z.z) == in.buffers.bits(op.z)));
    };
    for_each_program_case([&](DType storage, DType compute, const ProgramShape& shape) {
        plain_and_rstd<LinearSwiglu>(storage, compute, shape, [&](auto op, Inputs& in, const auto& factor) {
            check(op, in, storage, compute, shape, factor);
        });
    });
}

TEST_CASE("LinearSwigluBackward: dz, y and the partial dot before rounding; dz may be z") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::in_out);
        const Product product(in.buffers, in.a, in.w, WeightLayout::in_out);
        const View rstd = in.rstd(compute, shape.m);
        const auto dy = [&](std::int64_t i, std::int64_t j) { return in(rstd, 0, i) * product(i, j); };
        const View z = in.buffers.random(storage, shape.m, 2 * shape.n, -4, 4, 2 * shape.n + kGap);
        const LinearSwigluBackward op{.a = in.a,
                                      .w = in.w,
                                      .z = z,
                                      .z_scale = {},
                                      .rstd = rstd,
                                      .dz = in.out(storage, shape.m, 2 * shape.n),
                                      .y = in.out(storage, shape.m, shape.n),
                                      .dot = in.out(compute, tiles(shape.n, shape.tile), shape.m),
                                      .tile = shape.tile};
        in.run(op);

        const auto gate = [&](std::int64_t i, std::int64_t j) { return in(z, i, 2 * j); };
        const auto up = [&](std::int64_t i, std::int64_t j) { return in(z, i, 2 * j + 1); };
        const auto silu = [&](std::int64_t i, std::int64_t j) { return gate(i, j) * sigmoid(gate(i, j)); };
        const auto dgate = [&](std::int64_t i, std::int64_t j) {
            const double sigma = sigmoid(gate(i, j));
            return dy(i, j) * up(i, j) * (sigma + gate(i, j) * sigma * (1 - sigma));
        };
        const auto dup = [&](std::int64_t i, std::int64_t j) { return dy(i, j) * silu(i, j); };
        // rstd <= 2, |u| <= 4, |silu'| <= 1.1, |silu| <= 4; the terms of σ + s (1 - σ) may cancel.
        const double error = 10 * product.error + kArithmetic * epsilon(compute) * 8 * largest(product.acc);
        check_close("dz", in.buffers, op.dz, compute, error,
                    [&](std::int64_t i, std::int64_t j) { return j % 2 == 0 ? dgate(i, j / 2) : dup(i, j / 2); });
        check_close("y", in.buffers, op.y, compute, 0,
                    [&](std::int64_t i, std::int64_t j) { return silu(i, j) * up(i, j); });
        check_partials("dot", in.buffers, op.dot, shape.tile, shape.n, 8 * error,
                       [&](std::int64_t i, std::int64_t j) { return gate(i, j) * dgate(i, j) + up(i, j) * dup(i, j); });

        LinearSwigluBackward without_y = op;
        without_y.dz = in.out(storage, shape.m, 2 * shape.n);
        without_y.y = View{};
        in.run(without_y);
        CHECK((in.buffers.bits(without_y.dz) == in.buffers.bits(op.dz)));

        LinearSwigluBackward in_place = op;
        in_place.dz = z;
        in_place.y = in.out(storage, shape.m, shape.n);
        in_place.dot = in.out(compute, tiles(shape.n, shape.tile), shape.m);
        in.run(in_place);
        CHECK((in.buffers.bits(z) == in.buffers.bits(op.dz)));
        CHECK((in.buffers.bits(in_place.y) == in.buffers.bits(op.y)));
        CHECK((in.buffers.bits(in_place.dot) == in.buffers.bits(op.dot)));
    });
}

TEST_CASE("y recomputed from z has the bits of the forward pass") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::out_in);
        const std::int64_t pairs = shape.n / 2;
        const LinearSwiglu forward{.a = in.a,
                                   .w = in.w,
                                   .rstd = in.rstd(compute, shape.m),
                                   .z = in.out(storage, shape.m, 2 * pairs),
                                   .y = in.out(storage, shape.m, pairs)};
        in.run(forward);
        const LinearSwigluBackward backward{.a = in.a,
                                            .w = in.in(storage, shape.k, pairs),
                                            .z = forward.z,
                                            .z_scale = {},
                                            .rstd = View{},
                                            .dz = in.out(storage, shape.m, 2 * pairs),
                                            .y = in.out(storage, shape.m, pairs),
                                            .dot = in.out(compute, tiles(pairs, shape.tile), shape.m),
                                            .tile = shape.tile};
        in.run(backward);
        CHECK((in.buffers.bits(backward.y) == in.buffers.bits(forward.y)));
    });
}
