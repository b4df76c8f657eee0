// The next token of each sequence, chosen from its logits. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"
#include "kernels/math/sampling.h"

namespace coda {

/// What a sequence is doing, in the operand `state`. Only running ones get a token.
enum class RowState : std::int32_t {
    idle = 0,
    running = 1,
    ended = 2,   // an end token was chosen
    length = 3,  // it has as many tokens as it may
    failed = 4,  // a logit was not finite: `status` has its id
};

/// One token for each running row of S sequences, by the definition in kernels/math/sampling.h with the row's options.
/// The number of the draw is the token's position, lengths[s] as the op finds it. Then, for that row:
///   token = the chosen id; its bit of `seen` is set; positions = lengths, lengths += 1;
///   state = ended where the token is one of the row's end tokens, else length where lengths has reached limits
/// A row with a logit that is not finite fails instead: status = the lowest id of such a logit, state = failed, and the
/// rest stays. A row that does not run stays unchanged. A row's result depends only on that row.
///
/// Logits of fp64 are rounded to fp32, once. `options` lie in device memory, so one captured list serves any of them;
/// they must be valid (src/core/choice_options.h).
struct ChooseToken {
    In<Vector> options;       // (1, 8 S) i32: the 32 bytes of a ChoiceOptions per row, aligned to 8
    In<Matrix> logits;        // (S, V) statistic or storage
    In<Matrix> end_tokens;    // (S, E) i32, optional; < 0: none
    In<Vector> limits;        // (1, S) i32: tokens that a sequence may have in all
    InOut<Matrix> seen;       // (S, ceil(V / 32)) i32: bit i % 32 of word i / 32 is token i's. Optional: no penalty
    InOut<Vector> lengths;    // (1, S) i32: tokens of a sequence, the newest one included
    InOut<Vector> positions;  // (1, S) i32, optional: of the newest token
    InOut<Vector> state;      // (1, S) i32: RowState
    InOut<Vector> token;      // (1, S) i32: the newest token
    InOut<Vector> status;     // (1, S) i32: of a failed row

    static constexpr Traits traits{Trait::flops, Trait::bytes_of, Trait::tolerance};
    static constexpr const char* name = "ChooseToken";
    static constexpr auto operands =
        fields(field("options", &ChooseToken::options), field("logits", &ChooseToken::logits),
               field("end_tokens", &ChooseToken::end_tokens), field("limits", &ChooseToken::limits),
               field("seen", &ChooseToken::seen), field("lengths", &ChooseToken::lengths),
               field("positions", &ChooseToken::positions), field("state", &ChooseToken::state),
               field("token", &ChooseToken::token), field("status", &ChooseToken::status));

    static constexpr std::int64_t kOptionWords = 8;

    /// Per logit: the penalty, the distance, a polynomial of degree 6.
    double flops() const { return 16 * static_cast<double>(logits.count()); }
    /// Every word of `seen` is read, and one per row is written.
    std::int64_t bytes_of(const View& operand) const {
        return &operand == &seen ? (operand.count() + operand.rows) * size_of(DType::i32) / 2 : operand.bytes();
    }
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }
};
static_assert(sizeof(ChoiceOptions) == 4 * ChooseToken::kOptionWords && alignof(ChoiceOptions) == 8);

}  // namespace coda
