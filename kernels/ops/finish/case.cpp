#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

OpCase finish_rstd(Size size) {
    const std::int64_t tokens = size == Size::step ? 32768 : 1000, width = size == Size::step ? 2048 : 264;
    const std::int64_t tiles = ceil_div(width, LinearResidualRms::tile_columns(width, false));
    OpCase made;
    FinishRstd op;
    op.square = made.add("square", DType::f32, tiles, tokens, Fill::positive);
    op.rstd = made.result("rstd", DType::f32, 1, tokens);
    op.width = width;
    return made.finish(op, text(tiles, " x ", tokens));
}

OpCase row_sum(Size size, std::int64_t tiles) {
    const std::int64_t tokens = size == Size::step ? 32768 : 1000;
    OpCase made;
    FinishRowSum op;
    op.partials = made.add("partials", DType::f32, tiles, tokens, Fill::normal);
    op.sum = made.result("sum", DType::f32, 1, tokens);
    return made.finish(op, text(tiles, " x ", tokens));
}
/// The sums of the feed-forward layer, and of attention's heads.
OpCase row_sum_of_ffn(Size size) { return row_sum(size, ceil_div(8192, LinearSwigluBackward::kTileColumns)); }
OpCase row_sum_of_heads(Size size) { return row_sum(size, 32 + 2 * 8); }

/// `number` sums of the size that a norm's weight has. One of them divides, as that weight's does.
OpCase column_sums(Size size, int number) {
    const std::int64_t tokens = size == Size::step ? 32768 : 4000, width = size == Size::step ? 2048 : 264;
    const std::int64_t tiles = ceil_div(tokens, LinearRmsBackward::kTileRows);
    OpCase made;
    FinishColumnSums op;
    for (int i = 0; i < number; ++i) {
        const GradientSumNames& names = FinishColumnSums::kNames[static_cast<std::size_t>(i)];
        GradientSum sum;
        sum.partials = made.add(names.partials, DType::f32, tiles, width, Fill::normal);
        if (i == 0) sum.gamma = made.add(names.gamma, DType::f32, 1, width, Fill::positive);
        sum.grad = {made.add(names.grad, DType::f32, 1, width, Fill::normal, 1, Access::inout), Beta::accumulate};
        op.add(sum);
    }
    return made.finish(op, number == 1 ? text(tiles, " x ", width) : text(number, " x ", tiles, " x ", width));
}
OpCase column_sum(Size size) { return column_sums(size, 1); }
OpCase three_column_sums(Size size) { return column_sums(size, 3); }

}  // namespace

template <>
OpCases cases_of<FinishRstd>() {
    return {.programs = {}, .others = {{finish_rstd}}};
}
template <>
OpCases cases_of<FinishRowSum>() {
    return {.programs = {}, .others = {{row_sum_of_ffn}, {row_sum_of_heads}}};
}
template <>
OpCases cases_of<FinishColumnSums>() {
    return {.programs = {}, .others = {{column_sum}, {three_column_sums}}};
}

}  // namespace coda::cases
