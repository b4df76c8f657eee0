#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

template <bool kFolds>
OpCase round_weights(Size size) {
    const std::int64_t rows = size == Size::step ? 16384 : 37, width = size == Size::step ? 2048 : 264;
    OpCase made;
    RoundWeights op;
    op.master = made.add("master", DType::f32, rows, width, Fill::normal);
    if (kFolds) op.gamma = made.add("gamma", DType::f32, 1, width, Fill::normal);
    op.working = made.result("working", DType::bf16, rows, width);
    return made.finish(op, text(kFolds ? "folded, " : "", rows, " x ", width));
}

}  // namespace

template <>
OpCases cases_of<RoundWeights>() {
    return {.programs = {}, .others = {{round_weights<true>}, {round_weights<false>}}};
}

}  // namespace coda::cases
