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

OpCase column_sum(Size size) {
    const std::int64_t tokens = size == Size::step ? 32768 : 4000, width = size == Size::step ? 2048 : 264;
    const std::int64_t tiles = ceil_div(tokens, LinearRmsBackward::kTileRows);
    OpCase made;
    FinishColumnSum op;
    op.partials = made.add("partials", DType::f32, tiles, width, Fill::normal);
    op.gamma = made.add("gamma", DType::f32, 1, width, Fill::positive);
    op.grad = {made.add("grad", DType::f32, 1, width, Fill::normal, 1, Access::inout), Beta::accumulate};
    return made.finish(op, text(tiles, " x ", width));
}

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
OpCases cases_of<FinishColumnSum>() {
    return {.programs = {}, .others = {{column_sum}}};
}

}  // namespace coda::cases
