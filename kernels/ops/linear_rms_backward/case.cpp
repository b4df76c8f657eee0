#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

template <bool kF8, bool kSumsDx = false, bool kNormed = true>
GemmCase made(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearRmsBackward op;
    if constexpr (kF8)
        build.f8_product(op);
    else
        build.product(op, op.layout);
    op.tile = LinearRmsBackward::kTileRows;
    op.x = build.storage("x", shape.m, shape.n);
    if (kNormed) {
        op.rstd = build.rstd();
        op.dot = build.statistic("dot", shape.m, Fill::normal, std::sqrt(static_cast<double>(shape.n)));
    }
    if (!kNormed || (options.optionals && !kF8)) {
        op.alpha = build.statistic("alpha", 1, Fill::ones, 0.37);
        op.scale = build.statistic("scale", shape.m, Fill::positive, 1);
        op.n = build.result("n", shape.m, shape.n);
    }
    op.dx = build.accumulated("dx", shape.m, shape.n, DType::bf16);
    if (options.optionals && kF8) op.dx_codes = build.rounded(op.dx_names, shape.m, shape.n, 16, true, 0.125);
    if (kNormed) op.dgamma = build.result("dgamma", ceil_div(shape.m, op.tile), shape.n, DType::f32);
    if (kSumsDx) op.dx_sum = build.result("dx_sum", ceil_div(shape.m, op.tile), shape.n, DType::f32);
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<LinearRmsBackward>() {
    return {.programs = {{"LinearRmsBackward", made<false>},
                         {"LinearRmsBackward bias", made<false, true>},
                         {"LinearRmsBackward no norm", made<false, false, false>}},
            .f8 = {{"LinearRmsBackward f8", made<true>, 16}},
            .others = {}};
}

}  // namespace coda::cases
