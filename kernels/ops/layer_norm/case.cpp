#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

struct Extent {
    std::int64_t tokens, width;
};
Extent shape_of(Size size) { return size == Size::step ? Extent{32768, 2048} : Extent{200, 264}; }

OpCase layer_norm(Size size) {
    const auto [tokens, width] = shape_of(size);
    OpCase made;
    LayerNorm op;
    op.x = made.add("x", DType::bf16, tokens, width, Fill::normal);
    op.rstd = made.add("rstd", DType::f32, 1, tokens, Fill::positive);
    op.gamma = made.add("gamma", DType::f32, 1, width, Fill::positive);
    op.beta = made.add("beta", DType::f32, 1, width, Fill::normal);
    op.n = made.result("n", DType::bf16, tokens, width);
    return made.finish(op, text(tokens, " x ", width));
}

template <bool kSums>
OpCase layer_norm_backward(Size size) {
    const auto [tokens, width] = shape_of(size);
    const std::int64_t tiles = ceil_div(tokens, LayerNormBackward::kTileRows);
    OpCase made;
    LayerNormBackward op;
    op.dn = made.add("dn", DType::bf16, tokens, width, Fill::normal);
    op.x = made.add("x", DType::bf16, tokens, width, Fill::normal);
    op.rstd = made.add("rstd", DType::f32, 1, tokens, Fill::positive);
    op.gamma = made.add("gamma", DType::f32, 1, width, Fill::positive);
    op.dx = made.result("dx", DType::bf16, tokens, width);
    op.dgamma = made.result("dgamma", DType::f32, tiles, width);
    if (kSums) op.dbeta = made.result("dbeta", DType::f32, tiles, width);
    if (kSums) op.dx_sum = made.result("dx_sum", DType::f32, tiles, width);
    op.tile = LayerNormBackward::kTileRows;
    return made.finish(op, text(tokens, " x ", width, kSums ? ", all sums" : ""));
}

}  // namespace

template <>
OpCases cases_of<LayerNorm>() {
    return {.programs = {}, .others = {{layer_norm}}};
}
template <>
OpCases cases_of<LayerNormBackward>() {
    return {.programs = {}, .others = {{layer_norm_backward<true>}, {layer_norm_backward<false>, false}}};
}

}  // namespace coda::cases
