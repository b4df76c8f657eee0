#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

template <Gelu kind>
GemmCase made(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearGelu op;
    build.product(op, WeightLayout::out_in);
    op.rstd = build.rstd();
    op.bias = build.statistic("bias", shape.n, Fill::normal, 1);
    if (!options.evaluation) op.z = build.result("z", shape.m, shape.n);
    op.y = build.result("y", shape.m, shape.n);
    op.kind = kind;
    return build.finish(op);
}

template <Gelu kind>
GemmCase backward(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearGeluBackward op;
    build.product(op, op.layout);
    op.tile = LinearGeluBackward::kTileColumns;
    op.row_tile = LinearGeluBackward::kTileRows;
    op.z = build.storage("z", shape.m, shape.n);
    op.rstd = build.rstd();
    op.bias = build.statistic("bias", shape.n, Fill::normal, 1);
    op.dz = build.result("dz", shape.m, shape.n);
    if (options.optionals) op.y = build.result("y", shape.m, shape.n);
    op.dot = build.result("dot", ceil_div(shape.n, op.tile), shape.m, DType::f32);
    op.dbias = build.result("dbias", ceil_div(shape.m, op.row_tile), shape.n, DType::f32);
    op.kind = kind;
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<LinearGelu>() {
    return {.programs = {{"LinearGelu tanh", made<Gelu::tanh>}, {"LinearGelu exact", made<Gelu::exact>}}, .others = {}};
}
template <>
OpCases cases_of<LinearGeluBackward>() {
    return {.programs = {{"LinearGeluBackward tanh", backward<Gelu::tanh>},
                         {"LinearGeluBackward exact", backward<Gelu::exact>}},
            .others = {}};
}

}  // namespace coda::cases
