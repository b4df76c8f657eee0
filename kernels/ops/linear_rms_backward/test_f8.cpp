// LinearRmsBackward of FP8 factors against its formula in plain fp64 loops, on the same 8-bit operands.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearRmsBackward of FP8 operands: dz without rstd, overwriting and adding") {
    const DType format = GENERATE(DType::f8e4m3, DType::f8e5m2);
    for (const ProgramShape& shape : kProgramShapes) {
        INFO(name_of(format) << ", M " << shape.m << ", N " << shape.n << ", K " << shape.k);
        F8Inputs in(shape, format);
        const View x = in.in(DType::bf16, shape.m, shape.n), rstd = in.rstd(DType::f32, shape.m);
        const View dot = in.buffers.random(DType::f32, 1, shape.m, -9, 9);
        const View dx = in.out(DType::bf16, shape.m, shape.n);
        LinearRmsBackward op{.a = in.a,
                             .w = {in.w, in.undo},
                             .x = x,
                             .rstd = rstd,
                             .dot = dot,
                             .alpha = {},
                             .scale = {},
                             .dx = {dx, Beta::overwrite},
                             .n = {},
                             .dgamma = in.out(DType::f32, tiles(shape.m, shape.tile), shape.n),
                             .dx_sum = {},
                             .tile = shape.tile};
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
        CHECK_THROWS_WITH(in.run(op), Catch::Contains("n must be absent: a is f8e"));
    }
}

TEST_CASE("LinearRmsBackward of bf16 operands refuses the factor of FP8") {
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
                         .dx_sum = {},
                         .tile = shape.tile};
    op.w.undo = in.buffers.scalar(DType::f32, 1);
    CHECK_THROWS_WITH(in.run(op), Catch::Contains("undo goes with FP8 factors, and a is bf16"));
}

namespace {

/// An op that makes the FP8 copies of dx, and a QuantiseF8 of that dx. The oracle is the latter, which has tests of its
/// own (kernels/ops/quantise/test.cpp).
struct CopiesCase {
    F8Inputs in;
    LinearRmsBackward op;
    QuantiseF8 beside;

    CopiesCase(const ProgramShape& shape, double dx_scale, double amax) : in(shape) {
        const auto [m, n, k, tile] = shape;
        op = {.a = in.a,
              .w = {in.w, in.undo},
              .x = in.in(DType::bf16, m, n),
              .rstd = in.rstd(DType::f32, m),
              .dot = in.buffers.random(DType::f32, 1, m, -9, 9),
              .alpha = {},
              .scale = {},
              .dx = {in.buffers.random(DType::bf16, m, n, -1, 1, n + kGap), Beta::accumulate},
              .dx_codes = in.rounded(m, n, dx_scale, amax),
              .n = {},
              .dgamma = in.out(DType::f32, tiles(m, tile), n),
              .dx_sum = {},
              .tile = tile};
        beside = {.x = op.dx, .rstd = {}, .codes = in.rounded(m, n, dx_scale, amax)};
    }
    bool same(const View& left, const View& right) const { return in.buffers.bits(left) == in.buffers.bits(right); }
};

}  // namespace

TEST_CASE("LinearRmsBackward's FP8 copies of dx equal QuantiseF8's, by rows and transposed, with its amax") {
    for (const ProgramShape& shape : {ProgramShape{16, 16, 16, 64}, {48, 80, 32, 64}, {144, 272, 272, 64}})
        for (const double dx_scale : {8.0, 4096.0})  // the second saturates
            for (const double amax : {0.0, 1000.0})  // a larger one stays
                for (const Beta beta : {Beta::accumulate, Beta::overwrite}) {
                    INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k << ", scale " << dx_scale
                              << ", amax " << amax << ", adding " << (beta == Beta::accumulate));
                    CopiesCase made(shape, dx_scale, amax);
                    made.op.dx.beta = beta;
                    const Values before = made.in.buffers.values(made.op.dx);
                    made.in.run(made.op);
                    made.in.run(made.beside);
                    CHECK(made.same(made.op.dx_codes.rows, made.beside.codes.rows));
                    CHECK(made.same(made.op.dx_codes.columns, made.beside.codes.columns));
                    CHECK(made.same(made.op.dx_codes.amax, made.beside.codes.amax));
                    CHECK((made.in(made.op.dx_codes.amax, 0, 0) == 1000) == (amax == 1000));
                    CHECK(made.in.buffers.gaps_untouched(made.op.dx_codes.rows));
                    CHECK(made.in.buffers.gaps_untouched(made.op.dx_codes.columns));

                    // dx and dgamma are what they are without the copies.
                    LinearRmsBackward alone = made.op;
                    alone.dx_codes = {};
                    const View dx = made.in.out(DType::bf16, shape.m, shape.n);
                    for (std::int64_t i = 0; i < shape.m; ++i)
                        for (std::int64_t j = 0; j < shape.n; ++j)
                            made.in.buffers.set(dx, i, j, before[static_cast<std::size_t>(i * shape.n + j)]);
                    alone.dx = {dx, beta};
                    alone.dgamma = made.in.out(DType::f32, made.op.dgamma.rows, shape.n);
                    made.in.run(alone);
                    CHECK(made.same(alone.dx, made.op.dx));
                    CHECK(made.same(alone.dgamma, made.op.dgamma));
                }
}

TEST_CASE("LinearRmsBackward refuses FP8 copies of dx that are incomplete, ragged, or combined with bf16 operands") {
    CopiesCase complete({32, 48, 16, 64}, 1, 0);
    const auto refused = [&](const LinearRmsBackward& op, const char* why) {
        CHECK_THROWS_WITH(complete.in.run(op), Catch::Contains(why));
    };
    LinearRmsBackward op = complete.op;
    op.dx_codes.rows = View{};
    refused(op, "operand dx_f8 is missing");
    op = complete.op;
    op.dx_codes.amax = View{};
    refused(op, "operand dx_amax is missing");
    op = complete.op;
    op.dx_codes.columns.order = ColumnOrder::natural;
    refused(op, "operand dx_f8_t has its columns in natural order, expected pairs");
    CopiesCase ragged({24, 48, 16, 64}, 1, 0);
    CHECK_THROWS_WITH(ragged.in.run(ragged.op), Catch::Contains("M is 24, not a multiple of 16"));
    CopiesCase narrow({32, 40, 16, 64}, 1, 0);
    CHECK_THROWS_WITH(narrow.in.run(narrow.op), Catch::Contains("N is 40, not a multiple of 16"));

    Inputs bf16(DType::bf16, {32, 48, 16, 64}, WeightLayout::in_out);
    const View vector = bf16.rstd(DType::f32, 32);
    LinearRmsBackward beside_bf16{.a = bf16.a,
                                  .w = bf16.w,
                                  .x = bf16.in(DType::bf16, 32, 48),
                                  .rstd = vector,
                                  .dot = vector,
                                  .alpha = {},
                                  .scale = {},
                                  .dx = {bf16.out(DType::bf16, 32, 48), Beta::overwrite},
                                  .n = {},
                                  .dgamma = bf16.out(DType::f32, 1, 48),
                                  .dx_sum = {},
                                  .tile = 64};
    beside_bf16.dx_codes.amax = bf16.buffers.scalar(DType::f32, 0);
    CHECK_THROWS_WITH(bf16.run(beside_bf16), Catch::Contains("dx_scale goes with FP8 factors, and a is bf16"));
}
