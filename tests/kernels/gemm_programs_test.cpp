// What holds for every GEMM op of the CPU executor: messages, and the same bits on any number of threads.
#include <omp.h>

#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("GEMM programs name the operand that does not fit") {
    Inputs in(DType::f32, {.m = 4, .n = 8, .k = 3, .tile = 8}, WeightLayout::out_in);
    const auto message = [&](const auto& op) -> std::string {
        try {
            in.run(op);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const View out = in.out(DType::f32, 4, 8);
    const auto linear = [&](const View& a, const View& result) {
        return message(Linear{.a = a, .w = in.w, .rstd = {}, .out = {result, Beta::overwrite}});
    };
    CHECK(linear(in.a, out).empty());
    CHECK(linear(in.a, in.out(DType::f32, 4, 7)) == "Linear: operand out is (4, 7), expected (4, 8)");
    CHECK(linear(in.a, in.out(DType::bf16, 4, 8)) == "Linear: operand out is bf16, expected f32");
    CHECK(linear(in.a, View{}) == "Linear: operand out is missing");
    CHECK(linear(in.in(DType::f32, 4, 5), out) == "Linear: operand w is (8, 3), expected (8, 5)");
    CHECK(message(LinearCrossEntropy{.a = in.a,
                                     .w = in.w,
                                     .rstd = {},
                                     .target_logit = in.buffers.random(DType::f32, 1, 4),
                                     .exponentials = out,
                                     .sums = in.out(DType::f32, 1, 8),
                                     .vocab = 9,
                                     .tile = 8}) == "LinearCrossEntropy: vocab 9 must be 1 to 8, the rows of w");
}

TEST_CASE("GEMM programs give the same bits on one, two and five threads") {
    constexpr ProgramShape shape{.m = 421, .n = 536, .k = 300, .tile = 64};
    Inputs in(DType::bf16, shape, WeightLayout::out_in);
    const View dgrad_w = in.in(DType::bf16, shape.k, shape.n), x = in.in(DType::bf16, shape.m, shape.n);
    const View z = in.in(DType::bf16, shape.m, 2 * shape.n);
    const View row = in.rstd(DType::f32, shape.m);
    const auto run = [&](int threads) {
        const int before = omp_get_max_threads();
        omp_set_num_threads(threads);
        std::vector<View> outputs;
        const auto out = [&](DType dtype, std::int64_t rows, std::int64_t cols) {
            return outputs.emplace_back(in.buffers.matrix(dtype, rows, cols));
        };
        const auto storage = [&](std::int64_t cols) { return out(DType::bf16, shape.m, cols); };
        const auto partials = [&](std::int64_t length, std::int64_t count) {
            return out(DType::f32, tiles(length, shape.tile), count);
        };
        in.run(LinearSwiglu{.a = in.a, .w = in.w, .rstd = row, .z = storage(shape.n), .y = storage(shape.n / 2)});
        in.run(LinearCrossEntropy{.a = in.a,
                                  .w = in.w,
                                  .rstd = row,
                                  .target_logit = row,
                                  .exponentials = storage(shape.n),
                                  .sums = partials(shape.n, 2 * shape.m),
                                  .vocab = shape.n - 5,
                                  .tile = shape.tile});
        in.run(LinearResidualRms{.a = in.a,
                                 .w = in.w,
                                 .bias = {},
                                 .residual = x,
                                 .x = storage(shape.n),
                                 .square = partials(shape.n, shape.m),
                                 .tile = shape.tile});
        in.run(LinearRmsBackward{.a = in.a,
                                 .w = dgrad_w,
                                 .x = x,
                                 .rstd = row,
                                 .dot = row,
                                 .alpha = View{},
                                 .scale = row,
                                 .dx = {storage(shape.n), Beta::overwrite},
                                 .n = storage(shape.n),
                                 .dgamma = partials(shape.m, shape.n),
                                 .dx_sum = View{},
                                 .tile = shape.tile});
        in.run(LinearSwigluBackward{.a = in.a,
                                    .w = dgrad_w,
                                    .z = z,
                                    .z_scale = {},
                                    .rstd = row,
                                    .dz = storage(2 * shape.n),
                                    .y = storage(shape.n),
                                    .dot = partials(shape.n, shape.m),
                                    .tile = shape.tile});
        in.run(LinearHeadDot{.a = in.a,
                             .w = dgrad_w,
                             .o = x,
                             .out = storage(shape.n),
                             .delta = out(DType::f32, shape.n / kHead, shape.m),
                             .head_dim = kHead});
        omp_set_num_threads(before);
        std::vector<std::string> bits;
        for (const View& view : outputs) bits.push_back(in.buffers.bits(view));
        return bits;
    };
    const auto one = run(1);
    CHECK((one == run(2)));
    CHECK((one == run(5)));
}
