// The backward GEMM programs and WeightGradient against their formulas in plain fp64 loops; one test for the bits of
// every program on several threads.
#include <omp.h>

#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearRmsBackward: gradient of the residual stream, normalised activation, partial dgamma") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        for (const bool with_factors : {false, true}) {
            Inputs in(storage, shape, WeightLayout::in_out);
            const Product product(in.buffers, in.a, in.w, WeightLayout::in_out);
            const double alpha = with_factors ? 0.375 : 1;
            const View scales = in.buffers.random(compute, 1, shape.m, 0.5, 2);
            in.buffers.set(scales, 0, shape.m / 2, 0);  // as of an ignored row
            const View x = in.in(storage, shape.m, shape.n);
            const View rstd = in.rstd(compute, shape.m), dot = in.buffers.random(compute, 1, shape.m, -9, 9);
            const View dx = in.out(storage, shape.m, shape.n);
            LinearRmsBackward op{.a = in.a,
                                 .w = in.w,
                                 .x = x,
                                 .rstd = rstd,
                                 .dot = dot,
                                 .alpha = with_factors ? in.buffers.scalar(compute, alpha) : View{},
                                 .scale = with_factors ? scales : View{},
                                 .dx = {dx, Beta::overwrite},
                                 .n = in.out(storage, shape.m, shape.n),
                                 .dgamma = in.out(compute, tiles(shape.m, shape.tile), shape.n),
                                 .tile = shape.tile};
            in.run(op);

            // The gradient of the normalised activation and its dot: with factors as the op is given them; without, the
            // op is given both times rstd.
            const auto xhat = [&](std::int64_t i, std::int64_t j) { return in(x, i, j) * in(rstd, 0, i); };
            const auto scale = [&](std::int64_t i) { return with_factors ? in(scales, 0, i) : 1; };
            const auto given = [&](std::int64_t i) { return with_factors ? 1 : 1 / in(rstd, 0, i); };
            const auto dn = [&](std::int64_t i, std::int64_t j) { return alpha * scale(i) * given(i) * product(i, j); };
            const auto gradient = [&](std::int64_t i, std::int64_t j) {
                const double c = alpha * given(i) * in(dot, 0, i) / static_cast<double>(shape.n);
                return in(rstd, 0, i) * (dn(i, j) - xhat(i, j) * c);
            };
            // rstd <= 2, |x| <= 1, |c| <= 9 / 8, alpha scale <= 1: the difference may cancel.
            const double error = 2 * product.error + epsilon(compute) * (4 * largest(product.acc) + 10);
            check_close("dx", in.buffers, dx, compute, error, gradient);
            check_close("n", in.buffers, op.n, compute, 0,
                        [&](std::int64_t i, std::int64_t j) { return scale(i) * xhat(i, j); });
            check_partials("dgamma", in.buffers, op.dgamma, shape.tile, shape.m, 2 * product.error,
                           [&](std::int64_t column, std::int64_t row) { return dn(row, column) * xhat(row, column); });

            const Values before = in.buffers.values(dx);
            op.dx.beta = Beta::accumulate;
            in.run(op);
            check_close("dx +=", in.buffers, dx, compute, error + epsilon(compute) * largest(before),
                        [&](std::int64_t i, std::int64_t j) {
                            return before[static_cast<std::size_t>(i * shape.n + j)] + gradient(i, j);
                        });

            const Values overwritten = in.buffers.values(dx);
            for (std::int64_t i = 0; i < shape.m; ++i)
                for (std::int64_t j = 0; j < shape.n; ++j)
                    in.buffers.set(dx, i, j, before[static_cast<std::size_t>(i * shape.n + j)]);
            op.n = View{};
            in.run(op);
            CHECK(in.buffers.values(dx) == overwritten);
        }
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
        // rstd <= 2, |u| <= 4, |silu'| <= 1.1, |silu| <= 4; σ + s (1 - σ) may cancel.
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

TEST_CASE("y made again from z has the bits of the forward pass") {
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
                                            .rstd = View{},
                                            .dz = in.out(storage, shape.m, 2 * pairs),
                                            .y = in.out(storage, shape.m, pairs),
                                            .dot = in.out(compute, tiles(pairs, shape.tile), shape.m),
                                            .tile = shape.tile};
        in.run(backward);
        CHECK((in.buffers.bits(backward.y) == in.buffers.bits(forward.y)));
    });
}

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

TEST_CASE("WeightGradient overwrites or adds alpha dyᵀ x ⊙ gamma") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        for (const bool with_factors : {false, true}) {
            // dy (K, M) and x (K, N): the product over K tokens. Its transpose dyᵀ as the left operand of Product.
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
                                 .tile = shape.tile});
        in.run(LinearSwigluBackward{.a = in.a,
                                    .w = dgrad_w,
                                    .z = z,
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
