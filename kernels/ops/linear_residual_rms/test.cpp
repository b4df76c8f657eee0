// LinearResidualRms against its formula in plain fp64 loops.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearResidualRms: x with or without a bias, and the squares of x before rounding") {
    const bool has_bias = GENERATE(false, true);
    for_each_program_case([has_bias](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::out_in);
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        const View residual = in.in(storage, shape.m, shape.n);
        const LinearResidualRms op{.a = in.a,
                                   .w = in.w,
                                   .bias = has_bias ? in.buffers.random(compute, 1, shape.n, -2, 2) : View{},
                                   .residual = residual,
                                   .x = in.out(storage, shape.m, shape.n),
                                   .square = in.out(compute, tiles(shape.n, shape.tile), shape.m),
                                   .tile = shape.tile};
        in.run(op);
        const auto x = [&](std::int64_t i, std::int64_t j) {
            return product(i, j) + (has_bias ? in(op.bias, 0, j) : 0) + in(residual, i, j);
        };
        // |bias| <= 2, |residual| <= 1: of the sum before the last term is added, at most 2 cancels.
        const double error = product.error + (has_bias ? 3 : 1) * epsilon(compute);
        check_close("x", in.buffers, op.x, compute, error, x);
        check_partials("square", in.buffers, op.square, shape.tile, shape.n,
                       2 * (largest(product.acc) + (has_bias ? 3 : 1)) * error,
                       [&](std::int64_t i, std::int64_t j) { return x(i, j) * x(i, j); });
    });
}
