#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

/// All tensors of 16 layers, or some.
OpCase update(Size size) {
    const std::int32_t tensors = size == Size::step ? 160 : 37, window = size == Size::step ? 16 : 5;
    OpCase made;
    UpdateScales op;
    op.amax = made.add("amax", DType::f32, 1, tensors, Fill::positive, 1e-3, Access::inout);
    op.history = made.add("history", DType::f32, window, tensors, Fill::positive, 1e-3, Access::inout);
    op.step = made.add("step", DType::i32, 1, 1, Fill::ones, 7);
    op.skip = made.add("skip", DType::i32, 1, 1, Fill::ones, 0);
    op.scales = made.result("scales", DType::f32, 1, tensors);
    for (std::int32_t t = 0; t < tensors; ++t) op.pairs.push_back({t - 1, tensors - 1 - t});
    op.products = made.result("products", DType::f32, 1, tensors);
    return made.finish(op, text(tensors, " tensors, ", window, " steps"));
}

OpCase count(Size size) {
    const std::int64_t rows = size == Size::step ? 32768 : 77, columns = size == Size::step ? 16384 : 272;
    OpCase made;
    CountF8 op;
    op.codes = made.add("codes", DType::f8e4m3, rows, columns, Fill::normal, 100);  // 448 is 4.5 deviations
    op.counts = made.result("counts", DType::i32, 1, 2);
    return made.finish(op, text(rows, " x ", columns));
}

}  // namespace

template <>
OpCases cases_of<UpdateScales>() {
    return {.programs = {}, .others = {{update}}};
}
template <>
OpCases cases_of<CountF8>() {
    return {.programs = {}, .others = {{count}}};
}

}  // namespace coda::cases
