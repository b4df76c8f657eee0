// The FP8 form of LinearRmsBackward against its formula in plain fp64 loops, on the same 8-bit operands.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearRmsBackward of FP8 operands: dz without rstd, overwriting and adding") {
    for (const ProgramShape& shape : kProgramShapes) {
        INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k);
        F8Inputs in(shape);
        const View x = in.in(DType::bf16, shape.m, shape.n), rstd = in.rstd(DType::f32, shape.m);
        const View dot = in.buffers.random(DType::f32, 1, shape.m, -9, 9);
        const View dx = in.out(DType::bf16, shape.m, shape.n);
        LinearRmsBackward op{.a = in.a,
                             .w = in.w,
                             .f8_scale = in.scale,
                             .x = x,
                             .rstd = rstd,
                             .dot = dot,
                             .alpha = {},
                             .scale = {},
                             .dx = {dx, Beta::overwrite},
                             .n = {},
                             .dgamma = in.out(DType::f32, tiles(shape.m, shape.tile), shape.n),
                             .tile = shape.tile,
                             .promotion = 256};
        in.run(op);
        const auto t = [&](std::int64_t i, std::int64_t j) { return in(rstd, 0, i) * in.product(i, j); };
        const auto gradient = [&](std::int64_t i, std::int64_t j) {
            const double c = in(rstd, 0, i) * in(dot, 0, i) / static_cast<double>(shape.n);
            return t(i, j) - in(x, i, j) * in(rstd, 0, i) * c;
        };
        // rstd <= 2, |x| <= 1, |c| <= 18 / 8. The terms of the difference may cancel.
        const double error = 2 * in.product.error + epsilon(DType::f32) * (4 * largest(in.product.acc) + 20);
        check_close("dx", in.buffers, dx, DType::f32, error, gradient);
        check_partials("dgamma", in.buffers, op.dgamma, shape.tile, shape.m, 2 * in.product.error,
                       [&](std::int64_t column, std::int64_t row) { return t(row, column) * in(x, row, column); });

        const Values before = in.buffers.values(dx);
        op.dx.beta = Beta::accumulate;
        in.run(op);
        check_close("dx +=", in.buffers, dx, DType::f32, error + epsilon(DType::f32) * largest(before),
                    [&](std::int64_t i, std::int64_t j) {
                        return before[static_cast<std::size_t>(i * shape.n + j)] + gradient(i, j);
                    });
        op.n = in.out(DType::bf16, shape.m, shape.n);
        CHECK_THROWS_WITH(in.run(op), Catch::Contains("with FP8 operands, alpha, scale and n must be absent"));
    }
}

TEST_CASE("LinearRmsBackward of bf16 operands refuses promotion and the factor of FP8") {
    const ProgramShape shape = kProgramShapes[1];
    Inputs in(DType::bf16, shape, WeightLayout::in_out);
    const View vector = in.rstd(DType::f32, shape.m);
    LinearRmsBackward op{.a = in.a,
                         .w = in.w,
                         .x = in.in(DType::bf16, shape.m, shape.n),
                         .rstd = vector,
                         .dot = vector,
                         .alpha = {},
                         .scale = {},
                         .dx = {in.out(DType::bf16, shape.m, shape.n), Beta::overwrite},
                         .n = {},
                         .dgamma = in.out(DType::f32, tiles(shape.m, shape.tile), shape.n),
                         .tile = shape.tile,
                         .promotion = 256};
    CHECK_THROWS_WITH(in.run(op), Catch::Contains("promotion goes with FP8 operands, and a is bf16"));
    op.promotion = 0;
    op.f8_scale = in.buffers.scalar(DType::f32, 1);
    CHECK_THROWS_WITH(in.run(op), Catch::Contains("f8_scale goes with FP8 operands, and a is bf16"));
}
