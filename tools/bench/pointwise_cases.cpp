#include "tools/bench/pointwise_cases.h"

#include <algorithm>
#include <random>

#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "kernels/cost.h"

namespace coda::bench {

namespace {

// llama1b at B4 T8192.
constexpr std::int64_t kTokens = 32768, kWidth = 2048, kFfn = 8192, kHeads = 32, kKvHeads = 8;
constexpr std::int64_t kVocab = 128256, kParameters = 1498482688;

/// A case under construction.
struct Building : PointwiseCase {
    View add(const char* name, DType dtype, std::int64_t rows, std::int64_t columns, Fill fill, double scale = 1) {
        const View view{static_cast<BufferId>(buffers.size()), dtype, 0, rows, columns, columns, 0};
        buffers.push_back({name, view, fill, scale, Access::in});
        return view;
    }
    View scalar(double value) { return add("scalar", DType::f32, 1, 1, Fill::ones, value); }
    View zero() { return add("zero", DType::i32, 1, 1, Fill::positions, 1); }
    /// Bytes, as words of poison.
    View scratch(std::int64_t bytes_needed) {
        View view = add("scratch", DType::f32, 1, ceil_div(bytes_needed, 4), Fill::nothing);
        view.dtype = DType::u8;
        view.cols = view.ld = bytes_needed;
        return view;
    }
    PointwiseCase finish(const Op& made, const std::string& shape_text) {
        op = made;
        shape = shape_text;
        bytes = cost(op).bytes;
        return *this;
    }
    /// For an op of token ids, which moves rows of its table once per token that occurs.
    PointwiseCase finish(const Op& made, std::int64_t distinct_rows, std::int64_t bytes_moved) {
        finish(made, text(kTokens, " x ", kWidth, ", ", distinct_rows, " distinct"));
        bytes = static_cast<double>(bytes_moved);
        return *this;
    }
};

/// Token r of the vocabulary with a probability proportional to 1 / (r + 3), as in text.
std::vector<std::int32_t> text_like_tokens() {
    std::vector<double> weights(static_cast<std::size_t>(kVocab));
    for (std::size_t r = 0; r < weights.size(); ++r) weights[r] = 1.0 / static_cast<double>(r + 3);
    std::mt19937 generator(1);
    std::discrete_distribution<std::int32_t> rank(weights.begin(), weights.end());
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(kTokens));
    // A prime stride scatters common tokens over the table.
    for (auto& token : tokens) token = static_cast<std::int32_t>(rank(generator) * std::int64_t{48271} % kVocab);
    return tokens;
}

std::int64_t distinct(std::vector<std::int32_t> tokens) {
    std::sort(tokens.begin(), tokens.end());
    return std::unique(tokens.begin(), tokens.end()) - tokens.begin();
}

PointwiseCase adamw(std::int64_t count, DType moments) {
    Building made;
    AdamW op;
    op.grad = made.add("grad", DType::f32, 1, count, Fill::normal);
    op.master = made.add("master", DType::f32, 1, count, Fill::normal);
    op.m = made.add("m", moments, 1, count, Fill::normal);
    op.v = made.add("v", moments, 1, count, Fill::positive);
    op.working = made.add("working", DType::bf16, 1, count, Fill::nothing);
    op.lr = made.scalar(1e-4);
    op.correction1 = op.correction2 = op.clip = made.scalar(1);
    op.step = op.skip = made.zero();
    op.decayed = count - count / 1000 / 64 * 64;
    // Matrices that follow a norm and others in turn, as in a model.
    for (std::int64_t first = 0; first + 2 * kFfn * kWidth <= op.decayed; first += 3 * kFfn * kWidth)
        op.folds.push_back({.first = first, .rows = 2 * kFfn, .cols = kWidth, .gamma = op.decayed});
    op.beta1 = 0.9;
    op.beta2 = 0.95;
    op.eps = 1e-8;
    op.weight_decay = 0.1;
    return made.finish(op, text(count, " parameters, ", name_of(moments), " moments"));
}

PointwiseCase grad_norm(std::int64_t count) {
    Building made;
    GradNorm op;
    op.grad = made.add("grad", DType::f32, 1, count, Fill::normal);
    op.loss = made.scalar(1);
    op.norm = made.scalar(0);
    op.clip = made.scalar(0);
    op.skip = made.zero();
    op.scratch = made.scratch(op.scratch_bytes());
    op.max_norm = 1;
    return made.finish(op, text(count, " elements"));
}

PointwiseCase target_logit() {
    Building made;
    TargetLogit op;
    op.a = made.add("a", DType::bf16, kTokens, kWidth, Fill::normal);
    op.table = made.add("table", DType::bf16, kVocab, kWidth, Fill::normal);
    op.rstd = made.add("rstd", DType::f32, 1, kTokens, Fill::positive);
    op.targets = made.add("targets", DType::i32, 1, kTokens, Fill::targets, static_cast<double>(kVocab));
    op.target_logit = made.add("target_logit", DType::f32, 1, kTokens, Fill::nothing);
    return made.finish(op, text(kTokens, " x ", kWidth));
}

PointwiseCase embed() {
    Building made;
    Embed op;
    made.tokens = text_like_tokens();
    op.tokens = made.add("tokens", DType::i32, 1, kTokens, Fill::positions, 1);
    op.table = made.add("table", DType::bf16, kVocab, kWidth, Fill::normal);
    op.x = made.add("x", DType::bf16, kTokens, kWidth, Fill::nothing);
    op.rstd = made.add("rstd", DType::f32, 1, kTokens, Fill::nothing);
    op.eps = 1e-5;
    const std::int64_t rows = distinct(made.tokens);
    return made.finish(op, rows, op.x.bytes() + op.table.row_slice(0, rows).bytes());
}

PointwiseCase embed_backward() {
    Building made;
    EmbedBackward op;
    made.tokens = text_like_tokens();
    op.tokens = made.add("tokens", DType::i32, 1, kTokens, Fill::positions, 1);
    op.dx = made.add("dx", DType::bf16, kTokens, kWidth, Fill::normal);
    op.grad = made.add("grad", DType::f32, kVocab, kWidth, Fill::normal);
    op.scratch = made.scratch(op.scratch_bytes());
    const std::int64_t rows = distinct(made.tokens);
    return made.finish(op, rows, op.dx.bytes() + 2 * op.grad.row_slice(0, rows).bytes());
}

PointwiseCase finish_rstd() {
    Building made;
    FinishRstd op;
    const std::int64_t tiles = ceil_div(kWidth, LinearResidualRms::kTileColumns);
    op.square = made.add("square", DType::f32, tiles, kTokens, Fill::positive);
    op.rstd = made.add("rstd", DType::f32, 1, kTokens, Fill::nothing);
    op.width = kWidth;
    return made.finish(op, text(tiles, " x ", kTokens));
}

PointwiseCase finish_row_sum(std::int64_t tiles) {
    Building made;
    FinishRowSum op;
    op.partials = made.add("partials", DType::f32, tiles, kTokens, Fill::normal);
    op.sum = made.add("sum", DType::f32, 1, kTokens, Fill::nothing);
    return made.finish(op, text(tiles, " x ", kTokens));
}

PointwiseCase finish_column_sum() {
    Building made;
    FinishColumnSum op;
    const std::int64_t tiles = ceil_div(kTokens, LinearRmsBackward::kTileRows);
    op.partials = made.add("partials", DType::f32, tiles, kWidth, Fill::normal);
    op.gamma = made.add("gamma", DType::f32, 1, kWidth, Fill::positive);
    op.grad = {made.add("grad", DType::f32, 1, kWidth, Fill::normal), Beta::accumulate};
    return made.finish(op, text(tiles, " x ", kWidth));
}

PointwiseCase finish_cross_entropy() {
    Building made;
    FinishCrossEntropy op;
    const std::int64_t tiles = ceil_div(kVocab, LinearCrossEntropy::kTileColumns);
    op.sums = made.add("sums", DType::f32, tiles, 2 * kTokens, Fill::positive);
    op.target_logit = made.add("target_logit", DType::f32, 1, kTokens, Fill::normal);
    op.targets = made.add("targets", DType::i32, 1, kTokens, Fill::positions, static_cast<double>(kVocab));
    op.exponentials = made.add("exponentials", DType::bf16, kTokens, kVocab, Fill::positive);
    op.scale = made.add("scale", DType::f32, 1, kTokens, Fill::nothing);
    op.dot = made.add("dot", DType::f32, 1, kTokens, Fill::nothing);
    op.loss = made.add("loss", DType::f32, 1, kTokens, Fill::nothing);
    return made.finish(op, text(tiles, " x ", kTokens, " pairs"));
}

PointwiseCase reduce_loss() {
    Building made;
    ReduceLoss op;
    op.loss = made.add("loss", DType::f32, 1, kTokens, Fill::positive);
    op.alpha = made.scalar(1);
    op.total = {made.scalar(0), Beta::overwrite};
    return made.finish(op, text(kTokens));
}

constexpr NamedCase kCases[] = {
    {AdamW::name, [] { return adamw(kParameters, DType::f32); }},
    {AdamW::name, [] { return adamw(kParameters, DType::bf16); }},
    {AdamW::name, [] { return adamw(100000000, DType::f32); }},
    {AdamW::name, [] { return adamw(100000000, DType::bf16); }},
    {GradNorm::name, [] { return grad_norm(kParameters); }},
    {GradNorm::name, [] { return grad_norm(100000000); }},
    {Embed::name, embed},
    {EmbedBackward::name, embed_backward},
    {FinishRstd::name, finish_rstd},
    {FinishRowSum::name, [] { return finish_row_sum(ceil_div(kFfn, LinearSwigluBackward::kTileColumns)); }},
    {FinishRowSum::name, [] { return finish_row_sum(kHeads + 2 * kKvHeads); }},
    {FinishColumnSum::name, finish_column_sum},
    {TargetLogit::name, target_logit},
    {FinishCrossEntropy::name, finish_cross_entropy},
    {ReduceLoss::name, reduce_loss},
};

}  // namespace

std::span<const NamedCase> pointwise_cases() { return kCases; }

}  // namespace coda::bench
