#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

template <bool kF8>
GemmCase made(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearResidualRms op;
    if constexpr (kF8)
        build.f8_product(op);
    else
        build.product(op, WeightLayout::out_in);
    op.tile = LinearResidualRms::kTileColumns;
    op.residual = build.storage("residual", shape.m, shape.n);
    op.x = build.result("x", shape.m, shape.n);
    op.square = build.result("square", ceil_div(shape.n, op.tile), shape.m, DType::f32);
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<LinearResidualRms>() {
    return {
        .programs = {{"LinearResidualRms", made<false>}}, .f8 = {{"LinearResidualRms f8", made<true>}}, .others = {}};
}

}  // namespace coda::cases
