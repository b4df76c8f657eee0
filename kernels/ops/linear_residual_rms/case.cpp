#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

template <bool kF8, bool kBias = false>
GemmCase made(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearResidualRms op;
    if constexpr (kF8)
        build.f8_product(op);
    else
        build.product(op, WeightLayout::out_in);
    op.tile = LinearResidualRms::tile_columns(shape.n, kBias);
    if (kBias) op.bias = build.statistic("bias", shape.n, Fill::normal, 1);
    op.residual = build.storage("residual", shape.m, shape.n);
    op.x = build.result("x", shape.m, shape.n);
    op.square = build.result("square", ceil_div(shape.n, op.tile), shape.m, DType::f32);
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<LinearResidualRms>() {
    return {.programs = {{"LinearResidualRms", made<false>}, {"LinearResidualRms bias", made<false, true>}},
            .f8 = {{"LinearResidualRms f8", made<true>}},
            .others = {}};
}

}  // namespace coda::cases
