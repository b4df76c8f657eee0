#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

/// Weights as a copy.
OpCase weights(Size size) {
    const std::int64_t rows = size == Size::step ? 2048 : 300, columns = size == Size::step ? 8192 : 264;
    OpCase made;
    CentreColumns op;
    op.matrix = made.add("matrix", DType::bf16, rows, columns, Fill::normal, 0.02);
    op.out = made.result("out", DType::bf16, rows, columns);
    return made.finish(op, text(rows, " x ", columns));
}

/// The gradients of a matrix and its bias.
OpCase gradient(Size size) {
    const std::int64_t rows = size == Size::step ? 2048 : 300, columns = size == Size::step ? 8192 : 264;
    OpCase made;
    CentreColumns op;
    op.matrix = made.add("matrix", DType::f32, rows, columns, Fill::normal);
    op.out = made.result("out", DType::f32, rows, columns);
    op.bias = made.add("bias", DType::f32, 1, rows, Fill::normal);
    op.bias_out = made.result("bias_out", DType::f32, 1, rows);
    return made.finish(op, text(rows, " x ", columns, " f32"));
}

}  // namespace

template <>
OpCases cases_of<CentreColumns>() {
    return {.programs = {}, .others = {{weights}, {gradient}}};
}

}  // namespace coda::cases
