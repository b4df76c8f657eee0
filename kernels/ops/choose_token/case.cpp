#include <array>
#include <bit>

#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

OpCase choose_token(Size size, DType dtype, const ChoiceOptions& options) {
    const std::int64_t sequences = size == Size::step ? 8 : 5, vocab = size == Size::step ? 128256 : 1003;
    OpCase made;
    for (std::int64_t s = 0; s < sequences; ++s) {
        ChoiceOptions own = options;
        own.seed += static_cast<std::uint64_t>(s);
        for (const std::int32_t word : std::bit_cast<std::array<std::int32_t, ChooseToken::kOptionWords>>(own))
            made.tokens.push_back(word);
    }
    ChooseToken op;
    const auto row = [&](const char* name, Fill fill, double scale, Access access = Access::inout) {
        return made.add(name, DType::i32, 1, sequences, fill, scale, access);
    };
    op.options =
        made.add("options", DType::i32, 1, ChooseToken::kOptionWords * sequences, Fill::positions, 1, Access::in);
    op.logits = made.add("logits", dtype, sequences, vocab, Fill::normal, 3);
    op.end_tokens = made.add("end_tokens", DType::i32, sequences, 2, Fill::targets, static_cast<double>(vocab));
    op.limits = row("limits", Fill::ones, 1 << 20, Access::in);
    op.seen =
        made.add("seen", DType::i32, sequences, ceil_div(vocab, std::int64_t{32}), Fill::positions, 5, Access::inout);
    op.lengths = row("lengths", Fill::positions, 100);
    op.positions = row("positions", Fill::positions, 100);
    op.state = row("state", Fill::ones, static_cast<double>(RowState::running));
    op.token = row("token", Fill::positions, 100);
    op.status = row("status", Fill::ones, -1);
    return made.finish(op, text(sequences, " x ", vocab, " ", name_of(dtype),
                                options.temperature == 0 ? ", greedy"
                                : options.top_k != 0     ? ", all rules"
                                                         : ""));
}

OpCase greedy(Size size) { return choose_token(size, DType::f32, {.temperature = 0}); }
OpCase plain(Size size) { return choose_token(size, DType::bf16, {}); }
OpCase all_rules(Size size) {
    return choose_token(size, DType::f32,
                        {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .min_p = 0.02f, .repetition_penalty = 1.1f});
}

}  // namespace

template <>
OpCases cases_of<ChooseToken>() {
    return {.programs = {}, .others = {{greedy}, {plain}, {all_rules}}};
}

}  // namespace coda::cases
