#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

template <bool kF8>
GemmCase made(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearHeadDot op;
    if constexpr (kF8)
        build.f8_product(op);
    else
        build.product(op, op.layout);
    op.head_dim = options.head_dim;
    op.o = build.storage("o", shape.m, shape.n);
    op.out = build.result("out", shape.m, shape.n);
    op.delta = build.result("delta", shape.n / options.head_dim, shape.m, DType::f32);
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<LinearHeadDot>() {
    return {
        .programs = {{"LinearHeadDot", made<false>, 128}}, .f8 = {{"LinearHeadDot f8", made<true>, 128}}, .others = {}};
}

}  // namespace coda::cases
