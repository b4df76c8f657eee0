// LinearResidualRms of FP8 factors against its formula in plain fp64 loops, on the same 8-bit operands.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearResidualRms of FP8 operands: the factor, then the residual, and the squares before rounding") {
    for (const ProgramShape& shape : kProgramShapes) {
        INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k);
        F8Inputs in(shape);
        const View residual = in.in(DType::bf16, shape.m, shape.n);
        LinearResidualRms op{.a = in.a,
                             .w = {in.w, in.undo},
                             .bias = {},
                             .residual = residual,
                             .x = in.out(DType::bf16, shape.m, shape.n),
                             .square = in.out(DType::f32, tiles(shape.n, shape.tile), shape.m),
                             .tile = shape.tile};
        in.run(op);
        const auto x = [&](std::int64_t i, std::int64_t j) { return in.product(i, j) + in(residual, i, j); };
        const double error = in.product.error + epsilon(DType::f32);
        check_close("x", in.buffers, op.x, DType::f32, error, x);
        check_partials("square", in.buffers, op.square, shape.tile, shape.n, 2 * (largest(in.product.acc) + 1) * error,
                       [&](std::int64_t i, std::int64_t j) { return x(i, j) * x(i, j); });
        op.w.undo = View{};
        CHECK_THROWS_WITH(in.run(op), Catch::Contains("LinearResidualRms: operand undo is missing"));
    }
}

TEST_CASE("LinearResidualRms of bf16 operands refuses a factor of FP8") {
    Inputs in(DType::bf16, kProgramShapes[1], WeightLayout::out_in);
    const auto [m, n, k, tile] = kProgramShapes[1];
    const LinearResidualRms op{.a = in.a,
                               .w = {in.w, in.buffers.scalar(DType::f32, 1)},
                               .bias = {},
                               .residual = in.in(DType::bf16, m, n),
                               .x = in.out(DType::bf16, m, n),
                               .square = in.out(DType::f32, tiles(n, tile), m),
                               .tile = tile};
    CHECK_THROWS_WITH(in.run(op), Catch::Contains("undo goes with FP8 factors, and a is bf16"));
}
