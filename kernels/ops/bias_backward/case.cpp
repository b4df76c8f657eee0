#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

OpCase bias_backward(Size size, bool has_rstd) {
    const std::int64_t tokens = size == Size::step ? 32768 : 200, columns = size == Size::step ? 3072 : 776;
    OpCase made;
    BiasBackward op;
    op.dz = made.add("dz", DType::bf16, tokens, columns, Fill::normal);
    if (has_rstd) op.rstd = made.add("rstd", DType::f32, 1, tokens, Fill::positive);
    op.bias = made.add("bias", DType::f32, 1, columns, Fill::normal);
    op.dot = made.add("dot", DType::f32, 1, tokens, Fill::normal, 30, Access::inout);
    op.sum = made.result("sum", DType::f32, ceil_div(tokens, BiasBackward::kTileRows), columns);
    op.tile = BiasBackward::kTileRows;
    return made.finish(op, text(tokens, " x ", columns, has_rstd ? ", rstd" : ""));
}

OpCase with_rstd(Size size) { return bias_backward(size, true); }
OpCase without_rstd(Size size) { return bias_backward(size, false); }

}  // namespace

template <>
OpCases cases_of<BiasBackward>() {
    return {.programs = {}, .others = {{with_rstd}, {without_rstd, false}}};
}

}  // namespace coda::cases
