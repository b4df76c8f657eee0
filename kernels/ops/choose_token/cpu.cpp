// ChooseToken on the CPU: one row after the other, each by sampling::choose.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/cpu/access.h"
#include "kernels/cpu/execute.h"
#include "kernels/ops/choose_token/choose.h"
#include "kernels/ops/choose_token/op.h"

namespace coda::cpu {
namespace {

/// The operands of all rows. Absent ones are null.
struct Rows {
    const std::int32_t *options, *end_tokens, *limits;
    std::int32_t *seen, *lengths, *positions, *state, *token, *status;
};

ChoiceOptions options_of(const Rows& rows, std::int64_t s) {
    std::array<std::int32_t, ChooseToken::kOptionWords> words;
    std::copy_n(rows.options + s * ChooseToken::kOptionWords, words.size(), words.begin());
    return std::bit_cast<ChoiceOptions>(words);
}

template <class Storage>
void choose_row(const ChooseToken& op, const Rows& rows, const Storage* logits, std::int64_t s) {
    if (rows.state[s] != static_cast<std::int32_t>(RowState::running)) return;
    const ChoiceOptions options = options_of(rows, s);
    const sampling::Rules rules = sampling::rules_of(options);
    std::int32_t* seen = rows.seen ? rows.seen + s * op.seen.ld : nullptr;
    const auto bit_of = [](std::int64_t i) { return 1u << (i % 32); };

    std::vector<float> row(static_cast<std::size_t>(op.logits.cols));
    for (std::int64_t i = 0; i < op.logits.cols; ++i) {
        const auto logit = static_cast<float>(logits[i]);
        if (!std::isfinite(logit)) {
            rows.status[s] = static_cast<std::int32_t>(i);
            rows.state[s] = static_cast<std::int32_t>(RowState::failed);
            return;
        }
        const bool was_seen = seen && (static_cast<std::uint32_t>(seen[i / 32]) & bit_of(i)) != 0;
        row[static_cast<std::size_t>(i)] = sampling::penalised(logit, was_seen, rules);
    }
    const std::int32_t token = sampling::choose(row, rules, sampling::draw_of(options.seed, rows.lengths[s]));
    if (seen) seen[token / 32] |= static_cast<std::int32_t>(bit_of(token));
    rows.token[s] = token;
    if (rows.positions) rows.positions[s] = rows.lengths[s];
    rows.lengths[s] += 1;
    if (rows.lengths[s] >= rows.limits[s]) rows.state[s] = static_cast<std::int32_t>(RowState::length);
    for (std::int64_t e = 0; rows.end_tokens && e < op.end_tokens.cols; ++e)
        if (rows.end_tokens[s * op.end_tokens.ld + e] == token)
            rows.state[s] = static_cast<std::int32_t>(RowState::ended);
}

}  // namespace

template <>
void execute(const ChooseToken& op, const Memory& memory) {
    const std::int64_t number = op.logits.rows, vocab = op.logits.cols;
    require(vocab >= 1 && vocab <= sampling::kLargestVocab, op.name, ": logits of ", vocab, " tokens, must be 1 to ",
            sampling::kLargestVocab);
    const Operands operands(op.name, memory);
    Rows rows{};
    const auto vector = [&](const char* name, const View& view) {
        return operands.get<std::int32_t>(name, view, 1, number);
    };
    rows.options = operands.get<std::int32_t>("options", op.options, 1, ChooseToken::kOptionWords * number);
    rows.end_tokens = operands.get_optional<std::int32_t>("end_tokens", op.end_tokens, number, op.end_tokens.cols);
    rows.limits = vector("limits", op.limits);
    rows.seen = operands.get_optional<std::int32_t>("seen", op.seen, number, ceil_div(vocab, std::int64_t{32}));
    rows.lengths = vector("lengths", op.lengths);
    rows.positions = op.positions ? vector("positions", op.positions) : nullptr;
    rows.state = vector("state", op.state);
    rows.token = vector("token", op.token);
    rows.status = vector("status", op.status);
    dispatch_storage(op.name, op.logits.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const auto* logits = operands.get<Storage>("logits", op.logits, number, vocab);
        for (std::int64_t s = 0; s < number; ++s) choose_row(op, rows, logits + s * op.logits.ld, s);
    });
}

}  // namespace coda::cpu
