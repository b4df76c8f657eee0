#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

struct Copies {
    bool rows, columns;
    ColumnOrder order;
};

OpCase quantise(Size size, bool with_rstd, const Copies& copies, std::int64_t tokens, const char* role,
                DType format = DType::f8e4m3) {
    const std::int64_t width = size == Size::step ? 2048 : 272;
    if (size == Size::test) tokens = copies.columns ? 304 : 301;
    OpCase made;
    QuantiseF8 op;
    op.x = made.add("x", DType::bf16, tokens, width, Fill::normal, 3);
    if (with_rstd) op.rstd = made.add("rstd", DType::f32, 1, tokens, Fill::positive);
    op.codes.scale = made.scalar(format == DType::f8e5m2 ? 4096 : 32);  // saturates: 14 is 4.7 deviations
    if (copies.rows) op.codes.rows = made.result("rows", format, tokens, width);
    if (copies.columns) op.codes.columns = made.result("columns", format, width, tokens);
    op.codes.columns.order = copies.order;
    op.codes.amax = made.add("amax", DType::f32, 1, 1, Fill::ones, 0, Access::inout);
    return made.finish(op, text(role, ", ", tokens, " x ", width));
}

constexpr std::int64_t kTokens = 32768, kFeatures = 16384;

OpCase normalised(Size size) {
    return quantise(size, true, {true, false, ColumnOrder::natural}, kTokens, "rows, rstd");
}
OpCase normalised_columns(Size size) {
    return quantise(size, true, {false, true, ColumnOrder::paired}, kTokens, "columns, rstd");
}
OpCase activation(Size size) { return quantise(size, false, {true, true, ColumnOrder::paired}, kTokens, "both"); }
OpCase wide_activation(Size size) {
    return quantise(size, false, {true, true, ColumnOrder::paired}, kTokens, "both, e5m2", DType::f8e5m2);
}
OpCase weight(Size size) {
    return quantise(size, false, {true, true, ColumnOrder::natural}, kFeatures, "both, natural");
}

}  // namespace

template <>
OpCases cases_of<QuantiseF8>() {
    return {.programs = {}, .others = {{normalised}, {normalised_columns}, {activation}, {wide_activation}, {weight}}};
}

}  // namespace coda::cases
