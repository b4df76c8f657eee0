#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

OpCase reduce_parts(Size size, std::int64_t columns, ReduceParts::How how) {
    OpCase made;
    ReduceParts op;
    const std::int64_t rows = size == Size::step ? 2 : 3;
    op.parts = made.add("parts", DType::f32, rows, columns, Fill::normal);
    op.out = made.result("out", DType::f32, 1, columns);
    op.how = how;
    return made.finish(op, text(rows, " x ", columns, how == ReduceParts::How::sum ? "" : ", largest"));
}

/// Half of a layer of llama1b.
OpCase gradients(Size size) { return reduce_parts(size, size == Size::step ? 30408704 : 1000, ReduceParts::How::sum); }
OpCase magnitudes(Size size) { return reduce_parts(size, 225, ReduceParts::How::largest); }

}  // namespace

template <>
OpCases cases_of<ReduceParts>() {
    return {.programs = {}, .others = {{gradients}, {magnitudes, false}}};
}

}  // namespace coda::cases
