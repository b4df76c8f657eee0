#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

GemmCase made(const Shape& shape, const CaseOptions& options, WeightLayout layout, DType out) {
    GemmBuilder build(shape, options);
    Linear op;
    op.layout = layout;
    build.target().f32_out = out == DType::f32;
    build.product(op, layout);
    op.out = build.accumulated("out", shape.m, shape.n, out);
    return build.finish(op);
}
GemmCase forward(const Shape& shape, const CaseOptions& options) {
    return made(shape, options, WeightLayout::out_in, DType::bf16);
}
GemmCase dgrad(const Shape& shape, const CaseOptions& options) {
    return made(shape, options, WeightLayout::in_out, DType::bf16);
}
GemmCase f32(const Shape& shape, const CaseOptions& options) {
    return made(shape, options, WeightLayout::out_in, DType::f32);
}
GemmCase with_rstd(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    Linear op;
    build.product(op, op.layout);
    op.rstd = build.rstd();
    op.out = {build.result("out", shape.m, shape.n), Beta::overwrite};
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<Linear>() {
    return {
        .programs = {{"Linear", forward}, {"Linear in_out", dgrad}, {"Linear f32", f32}, {"Linear rstd", with_rstd}},
        .others = {}};
}

}  // namespace coda::cases
