// LinearHeadDot of FP8 factors against its formula in plain fp64 loops, on the same 8-bit operands.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearHeadDot of FP8 operands takes the transposed copy, and delta has the output as rounded") {
    for (const ProgramShape& shape : kProgramShapes) {
        INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k);
        F8Inputs in(shape);
        const View o = in.in(DType::bf16, shape.m, shape.n);
        LinearHeadDot op{.a = in.a,
                         .w = {in.w, in.undo},
                         .o = o,
                         .out = in.out(DType::bf16, shape.m, shape.n),
                         .delta = in.out(DType::f32, shape.n / kHead, shape.m),
                         .head_dim = kHead};
        in.run(op);
        check_close("out", in.buffers, op.out, DType::f32, in.product.error, in.product);
        check_partials("delta", in.buffers, op.delta, kHead, shape.n, 0,
                       [&](std::int64_t i, std::int64_t j) { return in(o, i, j) * in(op.out, i, j); });
        op.w = {in.in(DType::f8e4m3, shape.k + 1, shape.n), in.undo};
        CHECK_THROWS_WITH(in.run(op), Catch::Contains("FP8 operands with K in their columns"));
    }
}
