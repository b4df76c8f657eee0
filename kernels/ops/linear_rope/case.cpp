#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

template <bool kRstd, bool kBias = false, bool kF8 = false>
GemmCase made(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearRope op;
    if constexpr (kF8)
        build.f8_product(op);
    else
        build.product(op, WeightLayout::out_in);
    op.positions = build.add("positions", DType::i32, 1, shape.m, Fill::positions, 512, Access::in);
    op.rope = build.add("rope", DType::f32, 512, options.head_dim, Fill::angles, 1, Access::in);
    op.out = build.result("out", shape.m, shape.n);
    op.head_dim = options.head_dim;
    op.rotated = shape.n / options.head_dim * 5 / 6 * options.head_dim;
    if (kRstd) op.rstd = build.rstd();
    if (kBias || (kF8 && options.optionals)) op.bias = build.statistic("bias", shape.n, Fill::normal, 1);
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<LinearRope>() {
    return {.programs = {{"LinearRope", made<false>, 128},
                         {"LinearRope rstd", made<true>, 128},
                         {"LinearRope rstd bias", made<true, true>, 128}},
            .f8 = {{"LinearRope f8", made<false, false, true>, 128}},
            .others = {}};
}

}  // namespace coda::cases
