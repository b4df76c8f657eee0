#include <algorithm>
#include <random>

#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

/// Tokens whose r-th most common one has a probability proportional to 1 / (r + 3), as in text.
std::vector<std::int32_t> text_like_tokens(std::int64_t count, std::int64_t vocab) {
    std::vector<double> weights(static_cast<std::size_t>(vocab));
    for (std::size_t r = 0; r < weights.size(); ++r) weights[r] = 1.0 / static_cast<double>(r + 3);
    std::mt19937 generator(1);
    std::discrete_distribution<std::int32_t> rank(weights.begin(), weights.end());
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    // A prime stride scatters common tokens over the table.
    for (auto& token : tokens) token = static_cast<std::int32_t>(rank(generator) * std::int64_t{48271} % vocab);
    return tokens;
}

std::int64_t distinct(std::vector<std::int32_t> tokens) {
    std::sort(tokens.begin(), tokens.end());
    return std::unique(tokens.begin(), tokens.end()) - tokens.begin();
}

struct Sizes {
    std::int64_t tokens, width, vocab;
};
Sizes sizes_of(Size size) { return size == Size::step ? Sizes{32768, 2048, 128256} : Sizes{500, 264, 700}; }

template <bool kPositions, bool kCentred = false>
OpCase embed(Size size) {
    const auto [tokens, width, vocab] = sizes_of(size);
    OpCase made;
    Embed op;
    made.tokens = text_like_tokens(tokens, vocab);
    op.tokens = made.add("tokens", DType::i32, 1, tokens, Fill::positions, 1);
    op.table = made.add("table", DType::bf16, vocab, width, Fill::normal);
    op.x = made.result("x", DType::bf16, tokens, width);
    op.rstd = made.result("rstd", DType::f32, 1, tokens);
    op.eps = 1e-5;
    op.centred = kCentred;
    const std::int64_t rows = distinct(made.tokens);
    std::int64_t bytes = op.x.bytes() + op.table.row_slice(0, rows).bytes();
    if (kPositions) {
        const std::int64_t positions = tokens / 4;
        op.positions = made.add("positions", DType::i32, 1, tokens, Fill::positions, static_cast<double>(positions));
        op.position_table = made.add("position_table", DType::bf16, positions, width, Fill::normal);
        bytes += op.position_table.bytes();
    }
    return made.finish(op,
                       text(tokens, " x ", width, ", ", rows, " distinct", kPositions ? ", positions" : "",
                            kCentred ? ", centred" : ""),
                       bytes);
}

OpCase embed_backward(Size size) {
    const auto [tokens, width, vocab] = sizes_of(size);
    OpCase made;
    EmbedBackward op;
    made.tokens = text_like_tokens(tokens, vocab);
    op.tokens = made.add("tokens", DType::i32, 1, tokens, Fill::positions, 1);
    op.dx = made.add("dx", DType::bf16, tokens, width, Fill::normal);
    op.grad = made.add("grad", DType::f32, vocab, width, Fill::normal, 1, Access::inout);
    op.scratch = made.scratch(op.scratch_bytes());
    const std::int64_t rows = distinct(made.tokens);
    return made.finish(op, text(tokens, " x ", width, ", ", rows, " distinct"),
                       op.dx.bytes() + 2 * op.grad.row_slice(0, rows).bytes());
}

}  // namespace

template <>
OpCases cases_of<Embed>() {
    return {.programs = {}, .others = {{embed<false>}, {embed<true>, false}, {embed<true, true>, false}}};
}
template <>
OpCases cases_of<EmbedBackward>() {
    return {.programs = {}, .others = {{embed_backward}}};
}

}  // namespace coda::cases
