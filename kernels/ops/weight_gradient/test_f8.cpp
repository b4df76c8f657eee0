// WeightGradient of FP8 factors against its formula in plain fp64 loops, on the same codes.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

namespace {

/// The transposed copy of `view`, its rows, tokens, in pairs of each 16.
View transposed(Inputs& in, const View& view) {
    View copy = in.out(view.dtype, view.cols, view.rows);
    for (std::int64_t row = 0; row < view.rows; ++row)
        for (std::int64_t col = 0; col < view.cols; ++col)
            in.buffers.set(copy, col, paired_place(row), in(view, row, col));
    copy.order = ColumnOrder::paired;
    return copy;
}

}  // namespace

TEST_CASE("paired columns lie in the order 0, 8, 1, 9, ..., 7, 15 in each 16") {
    const int order[16] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
    for (int place = 0; place < 16; ++place)
        for (const std::int64_t first : {0, 16, 160}) CHECK(paired_place(first + order[place]) == first + place);
}

TEST_CASE("WeightGradient of transposed FP8 codes: undo dyᵀ x ⊙ gamma, whatever the order of tokens") {
    for (const DType format : {DType::f8e4m3, DType::f8e5m2})
        for (const auto& [out, width, tokens] : {std::tuple{24, 40, 16}, {72, 200, 144}, {136, 264, 320}}) {
            INFO(name_of(format) << ", out " << out << ", in " << width << ", M " << tokens);
            const ProgramShape shape{out, width, tokens, 128};
            Inputs in(DType::f32, shape, WeightLayout::out_in);
            const View dy = in.in(format, tokens, out), x = in.in(DType::f8e4m3, tokens, width);
            View by_feature = in.out(format, out, tokens);  // dyᵀ in natural order, for the reference
            for (std::int64_t m = 0; m < tokens; ++m)
                for (std::int64_t i = 0; i < out; ++i) in.buffers.set(by_feature, i, m, in(dy, m, i));
            const Product product(in.buffers, by_feature, x, WeightLayout::in_out);
            const View gamma = in.buffers.random(DType::f32, 1, width), grad = in.out(DType::f32, out, width);
            WeightGradient op{.dy = transposed(in, dy),
                              .x = {transposed(in, x), in.buffers.scalar(DType::f32, -0.75)},
                              .gamma = gamma,
                              .alpha = {},
                              .grad = {grad, Beta::overwrite},
                              .scratch = {}};
            CHECK(op.contraction() == tokens);
            CHECK(op.flops() == 2.0 * out * width * tokens);
            const auto expected = [&](std::int64_t i, std::int64_t j) {
                return -0.75 * product(i, j) * in(gamma, 0, j);
            };
            in.run(op);
            check_close("grad", in.buffers, grad, DType::f32, product.error, expected);
            const Values before = in.buffers.values(grad);
            op.grad.beta = Beta::accumulate;
            in.run(op);
            check_close("grad +=", in.buffers, grad, DType::f32, product.error, [&](std::int64_t i, std::int64_t j) {
                return before[static_cast<std::size_t>(i * width + j)] + expected(i, j);
            });

            op.x.order = ColumnOrder::natural;
            CHECK_THROWS_WITH(in.run(op),
                              Catch::Contains("operand x has its columns in natural order, expected pairs"));
        }
}
