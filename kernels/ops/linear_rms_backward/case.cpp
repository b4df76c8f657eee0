#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

template <bool kF8>
GemmCase made(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearRmsBackward op;
    if constexpr (kF8)
        build.f8_product(op, op.f8_scale);
    else
        build.product(op, op.layout);
    if (kF8) op.promotion = options.promotion;
    op.tile = LinearRmsBackward::kTileRows;
    op.x = build.storage("x", shape.m, shape.n);
    op.rstd = build.rstd();
    op.dot = build.statistic("dot", shape.m, Fill::normal, std::sqrt(static_cast<double>(shape.n)));
    if (options.optionals && !kF8) {
        op.alpha = build.statistic("alpha", 1, Fill::ones, 0.37);
        op.scale = build.statistic("scale", shape.m, Fill::positive, 1);
        op.n = build.result("n", shape.m, shape.n);
    }
    op.dx = build.accumulated("dx", shape.m, shape.n, DType::bf16);
    if (options.optionals && kF8) {
        op.dx_scale = build.scalar("dx_scale", 16);
        op.dx_f8 = build.f8_result("dx_f8", shape.m, shape.n);
        op.dx_f8_t = build.paired(build.f8_result("dx_f8_t", shape.n, shape.m));
        op.dx_amax = build.add("dx_amax", DType::f32, 1, 1, Fill::ones, 0.125, Access::inout);
    }
    op.dgamma = build.result("dgamma", ceil_div(shape.m, op.tile), shape.n, DType::f32);
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<LinearRmsBackward>() {
    return {.programs = {{"LinearRmsBackward", made<false>}},
            .f8 = {{"LinearRmsBackwardF8", made<true>, 16}},
            .others = {}};
}

}  // namespace coda::cases
