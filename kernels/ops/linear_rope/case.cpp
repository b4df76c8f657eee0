#include <algorithm>

#include "kernels/cases/op_cases.h"

namespace coda::cases {

namespace {

enum class Adds { nothing, bias, only_bias, norm };  // only_bias: without a rotation

template <bool kRstd, Adds kAdds = Adds::nothing, bool kF8 = false>
GemmCase made(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearRope op;
    if constexpr (kF8)
        build.f8_product(op);
    else
        build.product(op, WeightLayout::out_in);
    op.positions = build.add("positions", DType::i32, 1, shape.m, Fill::positions, 512, Access::in);
    op.rope = build.add("rope", DType::f32, 512, options.head_dim, Fill::angles, 1, Access::in);
    op.out = build.result("out", shape.m, shape.n);
    op.head_dim = options.head_dim;
    op.rotated = shape.n / options.head_dim * 5 / 6 * options.head_dim;
    if (kRstd) op.rstd = build.rstd();
    if (kAdds == Adds::only_bias) op.rotated = 0;
    if (kAdds == Adds::bias || kAdds == Adds::only_bias || (kF8 && kAdds != Adds::norm && options.optionals))
        op.bias = build.statistic("bias", shape.n, Fill::normal, 1);
    if (kAdds == Adds::norm) {
        const std::int64_t heads = std::max<std::int64_t>(1, op.rotated / options.head_dim);
        op.rotated = heads * options.head_dim;
        op.gain = build.add("gain", DType::f32, 2, options.head_dim, Fill::positive, 1, Access::in);
        op.queries = (heads * 4 + 4) / 5 * options.head_dim;
        op.eps = 1e-3;
        if (!options.evaluation) {
            op.pre = build.result("pre", shape.m, op.rotated);
            op.rho = build.result("rho", heads, shape.m, DType::f32);
        }
    }
    return build.finish(op);
}

}  // namespace

template <>
OpCases cases_of<LinearRope>() {
    return {.programs = {{"LinearRope", made<false>, 128},
                         {"LinearRope rstd", made<true>, 128},
                         {"LinearRope rstd bias", made<true, Adds::bias>, 128},
                         {"LinearRope rstd bias unrotated", made<true, Adds::only_bias>, 128},
                         {"LinearRope rstd norm", made<true, Adds::norm>, 128}},
            .f8 = {{"LinearRope f8", made<false, Adds::nothing, true>, 128},
                   {"LinearRope f8 norm", made<false, Adds::norm, true>, 128}},
            .others = {}};
}

}  // namespace coda::cases
