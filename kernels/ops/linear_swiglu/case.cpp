#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

template <bool kRstd>
GemmCase made(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearSwiglu op;
    build.product(op, WeightLayout::out_in);
    op.z = build.result("z", shape.m, shape.n);
    op.y = build.result("y", shape.m, shape.n / 2);
    if (kRstd) op.rstd = build.rstd();
    return build.finish(op);
}

GemmCase made_f8(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearSwigluF8 op;
    build.f8_product(op);
    op.z_scale = build.scalar("z_scale", 64);
    op.z_t = GemmBuilder::paired(build.f8_result("z_t", shape.n, shape.m));
    op.z_amax = build.add("z_amax", DType::f32, 1, 1, Fill::ones, 0, Access::inout);
    op.y_scale = build.scalar("y_scale", 32);
    op.y = build.f8_result("y", shape.m, shape.n / 2);
    op.y_t = GemmBuilder::paired(build.f8_result("y_t", shape.n / 2, shape.m));
    op.y_amax = build.add("y_amax", DType::f32, 1, 1, Fill::ones, 0, Access::inout);
    return build.finish(op);
}

GemmCase backward(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearSwigluBackward op;
    build.product(op, op.layout);
    op.tile = LinearSwigluBackward::kTileColumns;
    op.z = build.storage("z", shape.m, 2 * shape.n);
    op.rstd = build.rstd();
    op.dz = build.result("dz", shape.m, 2 * shape.n);
    if (options.optionals) op.y = build.result("y", shape.m, shape.n);
    op.dot = build.result("dot", ceil_div(shape.n, op.tile), shape.m, DType::f32);
    return build.finish(op);
}

GemmCase backward_f8(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearSwigluBackwardF8 op;
    build.f8_product(op);
    op.tile = LinearSwigluBackwardF8::kTileColumns;
    op.z_scale = build.scalar("z_scale", 0.5);  // z of size 2, where σ is far from linear
    op.z_t = GemmBuilder::paired(build.f8_operand("z_t", 2 * shape.n, shape.m));
    op.dz_scale = build.scalar("dz_scale", 16);
    op.dz = build.f8_result("dz", shape.m, 2 * shape.n);
    op.dz_t = GemmBuilder::paired(build.f8_result("dz_t", 2 * shape.n, shape.m));
    op.dz_amax = build.add("dz_amax", DType::f32, 1, 1, Fill::ones, 0, Access::inout);
    op.dot = build.result("dot", ceil_div(shape.n, op.tile), shape.m, DType::f32);
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<LinearSwiglu>() {
    return {.programs = {{"LinearSwiglu", made<false>, 16}, {"LinearRstdSwiglu", made<true>, 16}}, .others = {}};
}
template <>
OpCases cases_of<LinearSwigluBackward>() {
    return {.programs = {{"LinearSwigluBackward", backward}}, .others = {}};
}

template <>
OpCases cases_of<LinearSwigluF8>() {
    return {.programs = {}, .f8 = {{"LinearSwigluF8", made_f8, 32}}, .others = {}};
}
template <>
OpCases cases_of<LinearSwigluBackwardF8>() {
    return {.programs = {}, .f8 = {{"LinearSwigluBackwardF8", backward_f8}}, .others = {}};
}

}  // namespace coda::cases
