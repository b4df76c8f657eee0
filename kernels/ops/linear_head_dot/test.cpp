// LinearHeadDot against its formula in plain fp64 loops.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearHeadDot: delta is the dot product with the rounded output") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::in_out);
        const Product product(in.buffers, in.a, in.w, WeightLayout::in_out);
        const View o = in.in(storage, shape.m, shape.n);
        const LinearHeadDot op{.a = in.a,
                               .w = in.w,
                               .o = o,
                               .out = in.out(storage, shape.m, shape.n),
                               .delta = in.out(compute, shape.n / kHead, shape.m),
                               .head_dim = kHead};
        in.run(op);
        check_close("out", in.buffers, op.out, compute, product.error, product);
        check_partials("delta", in.buffers, op.delta, kHead, shape.n, 0,
                       [&](std::int64_t i, std::int64_t j) { return in(o, i, j) * in(op.out, i, j); });
    });
}
