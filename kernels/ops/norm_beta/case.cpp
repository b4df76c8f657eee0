#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

struct Extent {
    std::int64_t rows, width;
};
Extent shape_of(Size size) { return size == Size::step ? Extent{16384, 2048} : Extent{200, 264}; }

template <bool kHasBias>
OpCase fold_beta(Size size) {
    const auto [rows, width] = shape_of(size);
    OpCase made;
    FoldBeta op;
    op.working = made.add("working", DType::bf16, rows, width, Fill::normal, 0.02);
    op.gamma = made.add("gamma", DType::f32, 1, width, Fill::positive);
    op.beta = made.add("beta", DType::f32, 1, width, Fill::normal);
    if (kHasBias) op.bias = made.add("bias", DType::f32, 1, rows, Fill::normal);
    op.v = made.result("v", DType::f32, 1, rows);
    return made.finish(op, text(rows, " x ", width, kHasBias ? ", bias" : ""));
}

OpCase beta_backward(Size size) {
    const auto [rows, width] = shape_of(size);
    OpCase made;
    BetaBackward op;
    op.db = made.add("db", DType::f32, 1, rows, Fill::normal);
    op.working = made.add("working", DType::bf16, rows, width, Fill::normal, 0.02);
    op.beta = made.add("beta", DType::f32, 1, width, Fill::normal);
    op.grad = made.add("grad", DType::f32, rows, width, Fill::normal, 1, Access::inout);
    op.dbeta = made.result("dbeta", DType::f32, ceil_div(rows, BetaBackward::kTileRows), width);
    op.tile = BetaBackward::kTileRows;
    return made.finish(op, text(rows, " x ", width));
}

}  // namespace

template <>
OpCases cases_of<FoldBeta>() {
    return {.programs = {}, .others = {{fold_beta<true>}, {fold_beta<false>, false}}};
}
template <>
OpCases cases_of<BetaBackward>() {
    return {.programs = {}, .others = {{beta_backward}}};
}

}  // namespace coda::cases
