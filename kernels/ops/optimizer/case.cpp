#include <limits>

#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

constexpr std::int64_t kParameters = 1498482688;  // llama1b_untied
constexpr std::int64_t kFewParameters = 100000000;
constexpr std::int64_t kTestParameters = 100000;

OpCase adamw(std::int64_t count, DType moments) {
    const std::int64_t rows = count == kTestParameters ? 128 : 16384, columns = count == kTestParameters ? 64 : 2048;
    OpCase made;
    AdamW op;
    op.grad = made.add("grad", DType::f32, 1, count, Fill::normal);
    op.master = made.add("master", DType::f32, 1, count, Fill::normal, 1, Access::inout);
    op.m = made.add("m", moments, 1, count, Fill::normal, 1, Access::inout);
    op.v = made.add("v", moments, 1, count, Fill::positive, 1, Access::inout);
    op.working = made.result("working", DType::bf16, 1, count);
    op.lr = made.scalar(1e-4);
    op.correction1 = op.correction2 = op.clip = made.scalar(1);
    op.step = op.skip = made.zero();
    op.norms = made.add("norms", DType::f32, 1, columns, Fill::normal);
    op.first_norm = count;
    // Matrices that follow a norm alternate with others, as in a model.
    for (std::int64_t first = 0; first + rows * columns <= count; first += 3 * rows * columns / 2)
        op.folds.push_back({.first = first, .rows = rows, .cols = columns, .gamma = count});
    op.beta1 = 0.9;
    op.beta2 = 0.95;
    op.eps = 1e-8;
    op.weight_decay = 0.1;
    return made.finish(op, text(count, " parameters, ", name_of(moments), " moments"));
}
template <std::int64_t kCount, DType kMoments>
OpCase adamw(Size size) {
    return adamw(size == Size::step ? kCount : kTestParameters, kMoments);
}

template <std::int64_t kCount>
OpCase sum_squares(Size size) {
    const std::int64_t count = size == Size::step ? kCount : kTestParameters;
    OpCase made;
    SumSquares op;
    op.grad = made.add("grad", DType::f32, 1, count, Fill::normal);
    op.sums = made.result("sums", DType::f64, 1, SumSquares::sums_of(count));
    return made.finish(op, text(count, " elements"));
}

template <std::int64_t kCount>
OpCase grad_norm(Size size) {
    const std::int64_t count = SumSquares::sums_of(size == Size::step ? kCount : kTestParameters);
    OpCase made;
    GradNorm op;
    op.sums = made.add("sums", DType::f64, 1, count, Fill::positive);
    op.loss = made.scalar(1);
    op.drop_above = made.scalar(std::numeric_limits<float>::infinity());
    op.norm = made.result("norm", DType::f32, 1, 1);
    op.clip = made.result("clip", DType::f32, 1, 1);
    op.skip = made.zero();
    op.max_norm = 1;
    return made.finish(op, text(count, " sums"));
}

}  // namespace

template <>
OpCases cases_of<AdamW>() {
    return {.programs = {},
            .others = {{adamw<kParameters, DType::f32>},
                       {adamw<kParameters, DType::bf16>},
                       {adamw<kFewParameters, DType::f32>},
                       {adamw<kFewParameters, DType::bf16>}}};
}
template <>
OpCases cases_of<SumSquares>() {
    return {.programs = {}, .others = {{sum_squares<kParameters>}, {sum_squares<kFewParameters>}}};
}
template <>
OpCases cases_of<GradNorm>() {
    return {.programs = {}, .others = {{grad_norm<kParameters>}, {grad_norm<kFewParameters>}}};
}

}  // namespace coda::cases
