#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

template <bool kFolds>
OpCase unpack_int4(Size size) {
    const std::int64_t rows = size == Size::step ? 16384 : 48, width = size == Size::step ? 2048 : 384;
    OpCase made;
    UnpackInt4 op;
    op.units = made.add("units", DType::i32, rows / kInt4Rows, width / kInt4Group * kInt4UnitWords, Fill::int4);
    if (kFolds) op.gamma = made.add("gamma", DType::f32, 1, width, Fill::normal);
    op.working = made.result("working", DType::bf16, rows, width);
    return made.finish(op, text(kFolds ? "folded, " : "", rows, " x ", width));
}

}  // namespace

template <>
OpCases cases_of<UnpackInt4>() {
    return {.programs = {}, .others = {{unpack_int4<true>}, {unpack_int4<false>}}};
}

}  // namespace coda::cases
