#include <array>

#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

template <bool kRstd>
GemmCase linear(const Shape& shape, const CaseOptions& options) {
    GemmBuilder build(shape, options);
    LinearCrossEntropy op;
    build.product(op, WeightLayout::out_in);
    op.vocab = options.vocab == 0 ? shape.n : options.vocab;
    op.tile = LinearCrossEntropy::kTileColumns;
    op.target_logit = build.statistic("target_logit", shape.m, Fill::normal, options.distance);
    if (kRstd) op.rstd = build.rstd();
    if (!options.evaluation) op.exponentials = build.result("exponentials", shape.m, shape.n);
    op.sums = build.result("sums", ceil_div(shape.n, op.tile), 2 * shape.m, DType::f32);
    return build.finish(op);
}

OpCase target_logit(Size size) {
    const auto [tokens, width, vocab] = size == Size::step ? std::array<std::int64_t, 3>{32768, 2048, 128256}
                                                           : std::array<std::int64_t, 3>{300, 264, 1000};
    const double to_one = 1 / std::sqrt(static_cast<double>(width));
    OpCase made;
    TargetLogit op;
    op.a = made.add("a", DType::bf16, tokens, width, Fill::normal);
    op.table = made.add("table", DType::bf16, vocab, width, Fill::normal, to_one);
    op.rstd = made.add("rstd", DType::f32, 1, tokens, Fill::positive);
    op.targets = made.add("targets", DType::i32, 1, tokens, Fill::targets, static_cast<double>(vocab));
    op.target_logit = made.result("target_logit", DType::f32, 1, tokens);
    return made.finish(op, text(tokens, " x ", width));
}

OpCase finish_cross_entropy(Size size) {
    const auto [tokens, vocab] =
        size == Size::step ? std::array<std::int64_t, 2>{32768, 128256} : std::array<std::int64_t, 2>{300, 1000};
    const std::int64_t tiles = ceil_div(vocab, LinearCrossEntropy::kTileColumns);
    constexpr double kTargetExponential = 0x1p-58;  // kernels/math/cross_entropy.h
    OpCase made;
    FinishCrossEntropy op;
    op.sums = made.add("sums", DType::f32, tiles, 2 * tokens, Fill::positive, 8 * kTargetExponential);
    op.target_logit = made.add("target_logit", DType::f32, 1, tokens, Fill::normal);
    op.targets = made.add("targets", DType::i32, 1, tokens, Fill::positions, static_cast<double>(vocab));
    op.exponentials =
        made.add("exponentials", DType::bf16, tokens, vocab, Fill::positive, kTargetExponential, Access::inout);
    op.scale = made.result("scale", DType::f32, 1, tokens);
    op.dot = made.result("dot", DType::f32, 1, tokens);
    op.loss = made.result("loss", DType::f32, 1, tokens);
    op.flags = made.result("flags", DType::i32, 1, tokens);
    return made.finish(op, text(tiles, " x ", tokens, " pairs"));
}

/// One row in `period` is flagged; 0: none. Logits are of size 60.
OpCase exact_cross_entropy(Size size, std::int64_t period) {
    const auto [tokens, width, vocab, padded] = size == Size::step
                                                    ? std::array<std::int64_t, 4>{32768, 2048, 128256, 128256}
                                                    : std::array<std::int64_t, 4>{150, 264, 1000, 1024};
    OpCase made;
    ExactCrossEntropy op;
    made.tokens.resize(static_cast<std::size_t>(tokens));
    for (std::int64_t row = 0; row < tokens; ++row)
        made.tokens[static_cast<std::size_t>(row)] = period != 0 && row % period == 1;
    op.flags = made.add("flags", DType::i32, 1, tokens, Fill::positions, 1);
    op.a = made.add("a", DType::bf16, tokens, width, Fill::normal);
    op.table = made.add("table", DType::bf16, vocab, width, Fill::normal, 60 / std::sqrt(static_cast<double>(width)));
    op.rstd = made.add("rstd", DType::f32, 1, tokens, Fill::positive);
    op.targets = made.add("targets", DType::i32, 1, tokens, Fill::targets, static_cast<double>(vocab));
    op.exponentials = made.add("exponentials", DType::bf16, tokens, padded, Fill::positive, 1, Access::inout);
    op.scale = made.add("scale", DType::f32, 1, tokens, Fill::positive, 1, Access::inout);
    op.dot = made.add("dot", DType::f32, 1, tokens, Fill::normal, 1, Access::inout);
    op.loss = made.add("loss", DType::f32, 1, tokens, Fill::positive, 1, Access::inout);
    op.scratch = made.scratch(op.scratch_bytes());
    const std::string flagged = period == 0 ? "no row" : text("one row in ", period);
    return made.finish(op, text(tokens, " x ", width, " x ", vocab, ", ", flagged, " flagged"));
}
OpCase exact_of_no_row(Size size) { return exact_cross_entropy(size, 0); }
OpCase exact_of_some_rows(Size size) { return exact_cross_entropy(size, size == Size::step ? 1024 : 2); }

OpCase reduce_loss(Size size) {
    const std::int64_t tokens = size == Size::step ? 32768 : 3000;
    OpCase made;
    ReduceLoss op;
    op.loss = made.add("loss", DType::f32, 1, tokens, Fill::positive);
    op.alpha = made.scalar(1);
    op.total = {made.result("total", DType::f32, 1, 1), Beta::overwrite};
    return made.finish(op, text(tokens));
}

}  // namespace

template <>
OpCases cases_of<LinearCrossEntropy>() {
    return {.programs = {{"LinearCrossEntropy", linear<false>}, {"LinearCrossEntropy rstd", linear<true>}},
            .others = {}};
}
template <>
OpCases cases_of<TargetLogit>() {
    return {.programs = {}, .others = {{target_logit}}};
}
template <>
OpCases cases_of<FinishCrossEntropy>() {
    return {.programs = {}, .others = {{finish_cross_entropy}}};
}
template <>
OpCases cases_of<ExactCrossEntropy>() {
    return {.programs = {}, .others = {{exact_of_no_row}, {exact_of_some_rows}}};
}
template <>
OpCases cases_of<ReduceLoss>() {
    return {.programs = {}, .others = {{reduce_loss}}};
}

}  // namespace coda::cases
