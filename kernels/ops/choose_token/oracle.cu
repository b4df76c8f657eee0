// ChooseToken, checked by its formula in op.h, one thread per row: thresholds by bisection over keys, where the kernel
// narrows histograms.
#include <cuda_bf16.h>

#include "kernels/core/integers.h"
#include "kernels/ops/choose_token/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

namespace {

using sampling::Bin;
using sampling::Cut;

/// A row of penalised logits.
struct Row {
    Tensor logits;
    const std::int32_t* seen;  // as before the launch; may be null
    std::int64_t seen_ld, row, vocab;
    sampling::Rules rules;

    __device__ float operator()(std::int64_t id) const {
        const bool was_seen =
            seen != nullptr && (static_cast<std::uint32_t>(seen[row * seen_ld + id / 32]) >> (id % 32) & 1) != 0;
        return sampling::penalised(logits(row, id), was_seen, rules);
    }
    /// Tokens of keys >= key, and their masses.
    __device__ Bin from(std::uint64_t key, float largest, float scale) const {
        Bin sum;
        for (std::int64_t id = 0; id < vocab; ++id) {
            const float value = (*this)(id);
            if (sampling::key_of(value) < key) continue;
            ++sum.count;
            sum.mass += sampling::mass_of(largest - value, scale);
        }
        return sum;
    }
    /// The largest key from which on there are `count` tokens and `mass`, and how many of its tokens that takes.
    __device__ Cut reach(std::uint64_t count, std::uint64_t mass, float largest, float scale) const {
        std::uint64_t low = 0, high = std::uint64_t{1} << 32;  // low reaches it, high does not
        while (high - low > 1) {
            const std::uint64_t middle = (low + high) / 2;
            const Bin sum = from(middle, largest, scale);
            const bool reached = sum.count >= count && sum.mass >= mass;
            (reached ? low : high) = middle;
        }
        const Bin above = from(high, largest, scale);
        const auto key = static_cast<std::uint32_t>(low);
        if (count != 0) return {key, count - above.count};
        const std::uint64_t each = sampling::mass_of(largest - sampling::value_of(key), scale);
        return {key, (mass - above.mass + each - 1) / each};
    }
    /// fn(id, mass) of every token that stays, by id.
    template <class Fn>
    __device__ void each(const Cut& cut, std::uint64_t min_mass, float largest, float scale, const Fn& fn) const {
        std::uint64_t ties = 0;
        for (std::int64_t id = 0; id < vocab; ++id) {
            const float value = (*this)(id);
            const std::uint32_t key = sampling::key_of(value);
            const std::uint64_t mass = sampling::mass_of(largest - value, scale);
            const bool tied = key == cut.key;
            if (key > cut.key || (tied && ties < cut.ties))
                if (mass >= min_mass) fn(id, mass);
            ties += tied;
        }
    }
};

/// The token, or -1 - id of the first logit that is not finite.
__device__ std::int64_t expected_token(const Row& row, const ChoiceOptions& options, std::int32_t length) {
    std::int64_t best = 0;
    for (std::int64_t id = row.vocab - 1; id >= 0; --id) {
        if (row(id) >= row(best)) best = id;
    }
    for (std::int64_t id = 0; id < row.vocab; ++id)
        if (!isfinite(row.logits(row.row, id))) return -1 - id;
    const sampling::Rules rules = sampling::rules_of(options);
    if (rules.greedy) return best;
    const float largest = row(best);
    Cut cut;
    std::uint64_t total = 0;
    const bool by_count = rules.top_k != 0 && rules.top_k < static_cast<std::uint64_t>(row.vocab);
    if (by_count) cut = row.reach(rules.top_k, 0, largest, rules.scale);
    const auto add = [&](std::int64_t, std::uint64_t mass) { total += mass; };
    if (rules.top_p < sampling::kOne) {
        row.each(cut, 0, largest, rules.scale, add);
        cut = row.reach(0, sampling::target_of(total, rules.top_p), largest, rules.scale);
        total = 0;
    }
    row.each(cut, rules.min_mass, largest, rules.scale, add);
    const std::uint64_t point = sampling::point_of(sampling::draw_of(options.seed, length), total);
    std::uint64_t cumulated = 0;
    std::int64_t token = -1;
    row.each(cut, rules.min_mass, largest, rules.scale, [&](std::int64_t id, std::uint64_t mass) {
        cumulated += mass;
        if (token < 0 && cumulated > point) token = id;
    });
    return token;
}

/// An operand as the launch found it, rows without gaps.
const std::int32_t* words_before(const OpCheck& check, const char* operand) {
    const std::byte* copy = check.captured(operand);
    require(copy != nullptr, "oracle: ", operand, " is overwritten and was not captured before the launch");
    return reinterpret_cast<const std::int32_t*>(copy);
}

/// Compares an operand of one element per row with expected(element before the launch, row).
template <class Expected>
void compare_rows(OpCheck& check, const char* operand, const View& view, const Expected& expected) {
    const std::int32_t *found = check.memory().at<std::int32_t>(view), *old = words_before(check, operand);
    compare(
        check, operand, 1, view.cols,
        [=] __device__(std::int64_t, std::int64_t s) { return static_cast<double>(found[s]); },
        [=] __device__(std::int64_t, std::int64_t s) { return static_cast<double>(expected(old[s], s)); });
}

}  // namespace

template <>
void check_op(const ChooseToken& op, OpCheck& check) {
    const std::int64_t rows = op.logits.rows, vocab = op.logits.cols, words = ceil_div(vocab, std::int64_t{32});
    const Memory& memory = check.memory();
    const auto* options = reinterpret_cast<const ChoiceOptions*>(memory.at<std::int32_t>(op.options));
    const std::int32_t *limits = memory.at<std::int32_t>(op.limits), *ends = memory.at<std::int32_t>(op.end_tokens);
    const std::int32_t *lengths = words_before(check, "lengths"), *state = words_before(check, "state");
    const std::int32_t* seen = op.seen ? words_before(check, "seen") : nullptr;
    const std::int64_t end_ld = op.end_tokens.ld, end_count = op.end_tokens ? op.end_tokens.cols : 0;
    const Tensor logits = live(check, op.logits);

    // The expected tokens of running rows; a float holds each of them exactly.
    static_assert(sampling::kLargestVocab < 1 << 24);
    Pieces pieces(check.space());
    float* token = pieces.floats(rows);
    const auto runs = [=] __device__(std::int64_t s) {
        return state[s] == static_cast<std::int32_t>(RowState::running);
    };
    for_each(check, 1, rows, [=] __device__(std::int64_t, std::int64_t s) {
        const Row row{logits, seen, words, s, vocab, sampling::rules_of(options[s])};
        token[s] = runs(s) ? static_cast<float>(expected_token(row, options[s], lengths[s])) : 0.0f;
    });
    const auto chosen = [=] __device__(std::int64_t s) { return runs(s) && token[s] >= 0; };

    compare_rows(check, "token", op.token, [=] __device__(std::int32_t old, std::int64_t s) {
        return chosen(s) ? static_cast<std::int32_t>(token[s]) : old;
    });
    compare_rows(check, "lengths", op.lengths,
                 [=] __device__(std::int32_t old, std::int64_t s) { return chosen(s) ? old + 1 : old; });
    if (op.positions)
        compare_rows(check, "positions", op.positions,
                     [=] __device__(std::int32_t old, std::int64_t s) { return chosen(s) ? lengths[s] : old; });
    compare_rows(check, "status", op.status, [=] __device__(std::int32_t old, std::int64_t s) {
        return runs(s) && token[s] < 0 ? static_cast<std::int32_t>(-1 - token[s]) : old;
    });
    compare_rows(check, "state", op.state, [=] __device__(std::int32_t old, std::int64_t s) {
        if (!runs(s)) return old;
        if (token[s] < 0) return static_cast<std::int32_t>(RowState::failed);
        for (std::int64_t e = 0; e < end_count; ++e)
            if (ends[s * end_ld + e] == static_cast<std::int32_t>(token[s]))
                return static_cast<std::int32_t>(RowState::ended);
        return static_cast<std::int32_t>(lengths[s] + 1 >= limits[s] ? RowState::length : RowState::running);
    });
    if (!op.seen) return;
    const std::int32_t* found = memory.at<std::int32_t>(op.seen);
    const std::int64_t seen_ld = op.seen.ld;
    compare(
        check, "seen", rows, words,
        [=] __device__(std::int64_t s, std::int64_t word) { return static_cast<double>(found[s * seen_ld + word]); },
        [=] __device__(std::int64_t s, std::int64_t word) {
            const auto id = static_cast<std::int64_t>(token[s]);
            const bool own = chosen(s) && id / 32 == word;
            const auto bits = static_cast<std::uint32_t>(seen[s * words + word]) | (own ? 1u << (id % 32) : 0u);
            return static_cast<double>(static_cast<std::int32_t>(bits));
        });
}

}  // namespace coda::oracle
