#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

void add_scratch(GemmBuilder& build, WeightGradient& op) {
    if (const std::int64_t bytes = op.scratch_bytes(); bytes > 0)
        op.scratch = build.add("scratch", DType::u8, 1, bytes, Fill::nothing, 0, Access::inout);
}

/// M counts the rows of the gradient, N its columns, K the tokens.
GemmCase made(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    GemmCase& target = build.target();
    WeightGradient op;
    target.f32_out = true;
    target.major_a = target.major_b = hopper::Major::mn;
    op.dy = target.a = build.operand("dy", shape.k, shape.m, 1);
    op.x = target.b = build.operand("x", shape.k, shape.n, build.weight_scale());
    if (options.optionals) {
        op.gamma = build.statistic("gamma", shape.n, options.integers ? Fill::integers : Fill::positive,
                                   options.integers ? 3 : 1);
        op.alpha = build.statistic("alpha", 1, Fill::ones, options.integers ? 2 : 0.37);
    }
    op.grad = build.accumulated("grad", shape.m, shape.n, DType::f32);
    add_scratch(build, op);
    return build.finish(op);
}

/// The same from transposed codes.
GemmCase f8(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    GemmCase& target = build.target();
    WeightGradient op;
    target.f32_out = true;
    op.dy = target.a = GemmBuilder::paired(build.f8_operand("dy", shape.m, shape.k, options.gradient_type));
    target.b = GemmBuilder::paired(build.f8_operand("x", shape.n, shape.k));
    if (options.optionals)
        op.gamma = build.statistic("gamma", shape.n, options.integers ? Fill::integers : Fill::positive,
                                   options.integers ? 3 : 1);
    op.x = {target.b, build.scalar("undo", options.integers ? 2 : build.weight_scale())};
    op.grad = build.accumulated("grad", shape.m, shape.n, DType::f32);
    add_scratch(build, op);
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<WeightGradient>() {
    return {.programs = {{"WeightGradient", made, 8, true}}, .f8 = {{"WeightGradient f8", f8, 8, true}}, .others = {}};
}

}  // namespace coda::cases
