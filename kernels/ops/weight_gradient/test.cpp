// WeightGradient against its formula in plain fp64 loops.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("WeightGradient overwrites or adds alpha dyᵀ x ⊙ gamma") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        for (const bool with_factors : {false, true}) {
            // dy (K, M) and x (K, N): the GEMM sums over K tokens. Its left operand in Product is the transpose dyᵀ.
            Inputs in(storage, shape, WeightLayout::in_out);
            const View dy = in.out(storage, shape.k, shape.m);
            for (std::int64_t k = 0; k < shape.k; ++k)
                for (std::int64_t m = 0; m < shape.m; ++m) in.buffers.set(dy, k, m, in(in.a, m, k));
            const Product product(in.buffers, in.a, in.w, WeightLayout::in_out);
            const double alpha = with_factors ? -0.75 : 1;
            const View gamma = in.buffers.random(compute, 1, shape.n);
            const View grad = in.out(compute, shape.m, shape.n);
            WeightGradient op{.dy = dy,
                              .x = in.w,
                              .gamma = with_factors ? gamma : View{},
                              .alpha = with_factors ? in.buffers.scalar(compute, alpha) : View{},
                              .grad = {grad, Beta::overwrite},
                              .scratch = View{}};
            const auto expected = [&](std::int64_t i, std::int64_t j) {
                return alpha * (with_factors ? in(gamma, 0, j) : 1) * product(i, j);
            };
            in.run(op);
            check_close("grad", in.buffers, grad, compute, product.error, expected);

            const Values before = in.buffers.values(grad);
            op.grad.beta = Beta::accumulate;
            in.run(op);
            check_close("grad +=", in.buffers, grad, compute, product.error, [&](std::int64_t i, std::int64_t j) {
                return before[static_cast<std::size_t>(i * shape.n + j)] + expected(i, j);
            });
        }
    });
}
