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
    LinearSwiglu op;
    build.f8_product(op);
    op.z = build.rounded(op.z_names, shape.m, shape.n, 64, /*by_rows=*/false);
    op.y = build.rounded(op.y_names, shape.m, shape.n / 2, 32);
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
    LinearSwigluBackward op;
    build.f8_product(op);
    op.tile = LinearSwigluBackward::kTileColumns;
    op.z_scale = build.scalar("z_scale", 0.5);  // z of size 2, where σ is far from linear
    op.z = GemmBuilder::paired(build.f8_operand("z_t", 2 * shape.n, shape.m));
    op.dz = build.rounded(op.dz_names, shape.m, 2 * shape.n, 16);
    op.dot = build.result("dot", ceil_div(shape.n, op.tile), shape.m, DType::f32);
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<LinearSwiglu>() {
    return {.programs = {{"LinearSwiglu", made<false>, 16}, {"LinearSwiglu rstd", made<true>, 16}},
            .f8 = {{"LinearSwiglu f8", made_f8, 32}},
            .others = {}};
}
template <>
OpCases cases_of<LinearSwigluBackward>() {
    return {.programs = {{"LinearSwigluBackward", backward}},
            .f8 = {{"LinearSwigluBackward f8", backward_f8}},
            .others = {}};
}

}  // namespace coda::cases
