// LinearRmsBackward against its formula in plain fp64 loops.
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
                                 .dx_sum = in.out(compute, tiles(shape.m, shape.tile), shape.n),
                                 .tile = shape.tile};
            in.run(op);

            // The gradient of the normalised activation and its dot. With factors, the op is given both unchanged;
            // without, it is given both multiplied by rstd.
            const auto xhat = [&](std::int64_t i, std::int64_t j) { return in(x, i, j) * in(rstd, 0, i); };
            const auto scale = [&](std::int64_t i) { return with_factors ? in(scales, 0, i) : 1; };
            const auto given = [&](std::int64_t i) { return with_factors ? 1 : 1 / in(rstd, 0, i); };
            const auto dn = [&](std::int64_t i, std::int64_t j) { return alpha * scale(i) * given(i) * product(i, j); };
            const auto gradient = [&](std::int64_t i, std::int64_t j) {
                const double c = alpha * given(i) * in(dot, 0, i) / static_cast<double>(shape.n);
                return in(rstd, 0, i) * (dn(i, j) - xhat(i, j) * c);
            };
            // rstd <= 2, |x| <= 1, |c| <= 9 / 8, alpha scale <= 1. The terms of the difference may cancel.
            const double error = 2 * product.error + epsilon(compute) * (4 * largest(product.acc) + 10);
            check_close("dx", in.buffers, dx, compute, error, gradient);
            check_close("n", in.buffers, op.n, compute, 0,
                        [&](std::int64_t i, std::int64_t j) { return scale(i) * xhat(i, j); });
            check_partials("dgamma", in.buffers, op.dgamma, shape.tile, shape.m, 2 * product.error,
                           [&](std::int64_t column, std::int64_t row) { return dn(row, column) * xhat(row, column); });

            check_partials("dx_sum", in.buffers, op.dx_sum, shape.tile, shape.m, error,
                           [&](std::int64_t column, std::int64_t row) { return gradient(row, column); });

            const Values before = in.buffers.values(dx);
            op.dx.beta = Beta::accumulate;
            in.run(op);
            check_close("dx +=", in.buffers, dx, compute, error + epsilon(compute) * largest(before),
                        [&](std::int64_t i, std::int64_t j) {
                            return before[static_cast<std::size_t>(i * shape.n + j)] + gradient(i, j);
                        });

            check_partials("dx_sum of the sum", in.buffers, op.dx_sum, shape.tile, shape.m,
                           error + epsilon(compute) * largest(before), [&](std::int64_t column, std::int64_t row) {
                               return before[static_cast<std::size_t>(row * shape.n + column)] + gradient(row, column);
                           });

            const Values overwritten = in.buffers.values(dx);
            for (std::int64_t i = 0; i < shape.m; ++i)
                for (std::int64_t j = 0; j < shape.n; ++j)
                    in.buffers.set(dx, i, j, before[static_cast<std::size_t>(i * shape.n + j)]);
            op.n = op.dx_sum = View{};
            in.run(op);
            CHECK(in.buffers.values(dx) == overwritten);
        }
    });
}

TEST_CASE(
    "LinearRmsBackward without a norm: the gradient of what the projection reads, times alpha and the row's scale") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::in_out);
        const Product product(in.buffers, in.a, in.w, WeightLayout::in_out);
        const double alpha = 0.375;
        const View scales = in.buffers.random(compute, 1, shape.m, 0.5, 2);
        const View x = in.in(storage, shape.m, shape.n), dx = in.out(storage, shape.m, shape.n);
        LinearRmsBackward op;
        op.a = in.a;
        op.w = in.w;
        op.x = x;
        op.alpha = in.buffers.scalar(compute, alpha);
        op.scale = scales;
        op.dx = {dx, Beta::overwrite};
        op.n = in.out(storage, shape.m, shape.n);
        op.tile = shape.tile;
        in.run(op);
        const auto gradient = [&](std::int64_t i, std::int64_t j) { return alpha * in(scales, 0, i) * product(i, j); };
        const double error = product.error + epsilon(compute) * 4 * largest(product.acc);
        check_close("dx", in.buffers, dx, compute, error, gradient);
        check_close("n", in.buffers, op.n, compute, 0,
                    [&](std::int64_t i, std::int64_t j) { return in(scales, 0, i) * in(x, i, j); });
    });
}
