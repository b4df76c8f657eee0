#include "src/generate/batch_decoder.h"

#include <algorithm>
#include <numeric>

#include "src/core/choice_options.h"
#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/engine/feed.h"
#include "src/generate/prompt_lookup.h"

namespace coda {

BatchDecoder::BatchDecoder(Executor& executor, const Schedules& schedules, std::function<void(Pass)> run,
                           std::unique_ptr<DecodeLaunches> launches)
    : executor_(executor),
      schedules_(schedules),
      sequences_(schedules.host.sequences),
      vocab_(std::get<ChooseToken>(schedules.decode.back().op).logits.cols),
      prefill_lengths_(prefill_lengths(schedules.host.cache.context)),
      run_(std::move(run)),
      launches_(std::move(launches)),
      bytes_(step_bytes(schedules.decode)),
      held_(static_cast<std::size_t>(sequences_.token.cols / rows_each())) {
    const View& positions = schedules.host.prefill.positions;
    std::vector<std::int32_t> in_order(static_cast<std::size_t>(positions.cols));
    std::iota(in_order.begin(), in_order.end(), 0);
    executor_.upload(positions, in_order.data());
    const HostViews::Prefill& prefill = schedules.host.prefill;
    if (!prefill.doc_start) return;
    std::vector<std::int32_t> first_keys(in_order.size(), 0);
    apply_window(prefill.window, prefill.doc_start.cols, first_keys);
    executor_.upload(prefill.doc_start, first_keys.data());
}

void BatchDecoder::check(int row) const {
    require(row >= 0 && row < batch(), "there is no row ", row, " for a sequence; there are ", batch());
}

void BatchDecoder::check(int row, const SequenceStart& sequence) const {
    check(row);
    const auto prompt = static_cast<std::int64_t>(sequence.prompt.size());
    require(prompt >= 1, "a sequence needs a prompt of at least one token");
    require(prompt < context(), "the prompt has ", prompt, " tokens, and a context of ", context(),
            " positions holds a prompt of up to ", context() - 1, " and what follows it");
    require(sequence.max_tokens >= 1, "a sequence of ", sequence.max_tokens, " tokens: it takes at least 1");
    require(static_cast<std::int64_t>(sequence.end_tokens.size()) <= kMostEndTokens, "a sequence has ",
            sequence.end_tokens.size(), " end tokens, and it takes up to ", kMostEndTokens);
    require_choice_options(sequence.choice, "a sequence: ");
    for (std::size_t i = 0; i < sequence.prompt.size(); ++i) {
        require(sequence.prompt[i] >= 0 && sequence.prompt[i] < vocab_, "token ", i, " of the prompt is ",
                sequence.prompt[i], ", outside of a vocabulary of ", vocab_);
    }
}

/// Sets the elements of all rows of the pass that belong to the decoder's row.
void BatchDecoder::set(const View& per_row, int row, std::int32_t value) {
    const std::vector<std::int32_t> values(static_cast<std::size_t>(rows_each()), value);
    executor_.upload(part_of(per_row, first_of(row), rows_each()), values.data());
}

/// Returns the first one's element.
std::int32_t BatchDecoder::get(const View& per_row, int row) {
    std::int32_t value = 0;
    executor_.download(part_of(per_row, first_of(row), 1), &value);
    return value;
}

bool BatchDecoder::any_running() const {
    return std::any_of(held_.begin(), held_.end(), [](const Held& held) { return held.running; });
}

/// The rows before the padding do not see it, and it is not stored.
void BatchDecoder::prefill(int row, std::span<const std::int32_t> tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const auto length = std::lower_bound(prefill_lengths_.begin(), prefill_lengths_.end(), count);
    const HostViews::Prefill& host = schedules_.host.prefill;
    const std::int32_t place[] = {row, 0, static_cast<std::int32_t>(count)};
    executor_.upload(part_of(host.tokens, 0, count), tokens.data());
    executor_.upload(host.place, place);
    run_(prefill_pass(static_cast<std::size_t>(length - prefill_lengths_.begin())));
}

void BatchDecoder::start(int row, const SequenceStart& sequence) {
    check(row, sequence);
    stop(row);
    const std::span<const std::int32_t> prompt = sequence.prompt;
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length > 1) prefill(row, prompt.first(prompt.size() - 1));

    std::vector<std::int32_t> seen(static_cast<std::size_t>(sequences_.seen.cols), 0);
    for (const std::int32_t token : prompt) {
        auto& word = seen[static_cast<std::size_t>(token) / 32];
        word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | 1u << (token % 32));
    }
    std::vector<std::int32_t> end_tokens(static_cast<std::size_t>(kMostEndTokens), -1);
    std::copy(sequence.end_tokens.begin(), sequence.end_tokens.end(), end_tokens.begin());
    for (std::int64_t m = first_of(row); m < first_of(row + 1); ++m) {
        executor_.upload(sequences_.seen.row_slice(m, 1), seen.data());
        executor_.upload(sequences_.end_tokens.row_slice(m, 1), end_tokens.data());
        executor_.upload(part_of(sequences_.options, m * ChooseToken::kOptionWords, ChooseToken::kOptionWords),
                         &sequence.choice);
    }
    const std::int64_t limit = length + std::min(sequence.max_tokens, context() - length);
    set(sequences_.limits, row, static_cast<std::int32_t>(limit));
    held_[static_cast<std::size_t>(row)] = {.running = true,
                                            .guessable = guesses() && sequence.choice.repetition_penalty == 1,
                                            .limit = limit,
                                            .tokens = sequence.prompt};
    if (!guesses()) {  // place_guesses() does it before each step
        set(sequences_.token, row, prompt.back());
        set(sequences_.positions, row, static_cast<std::int32_t>(length - 1));
        set(sequences_.lengths, row, static_cast<std::int32_t>(length));
        set(sequences_.state, row, static_cast<std::int32_t>(RowState::running));
    }
    executor_.finish();
}

void BatchDecoder::stop(int row) {
    check(row);
    bool& running = held_[static_cast<std::size_t>(row)].running;
    if (!running) return;
    running = false;
    // An idle row looks up token 0 and attends to nothing.
    for (const View* view : {&sequences_.token, &sequences_.positions, &sequences_.lengths}) set(*view, row, 0);
    set(sequences_.state, row, static_cast<std::int32_t>(RowState::idle));
}

std::vector<float> BatchDecoder::logits(int row) {
    check(row);
    require(!guesses(), "logits of a row that has several tokens per step");
    const View logits = sequences_.logits.row_slice(row, 1);
    const std::vector<double> values = download_vector(executor_, part_of(logits, 0, vocab_));
    return {values.begin(), values.end()};
}

void BatchDecoder::replace_newest(int row, std::int32_t token) {
    check(row);
    require(!guesses(), "a token for a row that has several per step");
    require(token >= 0 && token < vocab_, "the token ", token, " is outside of a vocabulary of ", vocab_);
    set(sequences_.token, row, token);
    held_[static_cast<std::size_t>(row)].tokens.back() = token;
}

void BatchDecoder::place_guesses() {
    const auto rows = static_cast<std::size_t>(sequences_.token.cols);
    // Idle rows stay as stop() leaves them.
    std::vector<std::int32_t> token(rows, 0), positions(rows, 0), lengths(rows, 0);
    std::vector<std::int32_t> state(rows, static_cast<std::int32_t>(RowState::idle));
    for (std::size_t row = 0; row < held_.size(); ++row) {
        Held& held = held_[row];
        held.guess.clear();
        if (!held.running) continue;
        const auto length = static_cast<std::int64_t>(held.tokens.size());
        const std::int64_t most = std::min(rows_each() - 1, held.limit - length - 1);
        if (held.guessable) held.guess = guess_next(held.tokens, most);
        for (std::size_t j = 0; j <= held.guess.size(); ++j) {
            const auto m = static_cast<std::size_t>(first_of(static_cast<int>(row))) + j;
            token[m] = j == 0 ? held.tokens.back() : held.guess[j - 1];
            lengths[m] = static_cast<std::int32_t>(held.tokens.size() + j);
            positions[m] = lengths[m] - 1;
            state[m] = static_cast<std::int32_t>(RowState::running);
        }
    }
    executor_.upload(sequences_.token, token.data());
    executor_.upload(sequences_.positions, positions.data());
    executor_.upload(sequences_.lengths, lengths.data());
    executor_.upload(sequences_.state, state.data());
}

/// A step reads the weights once, and of each sequence that makes a token what it has so far and its tokens see.
void BatchDecoder::count_bytes(const DecodedSteps& made) {
    const auto rows = static_cast<std::size_t>(sequences_.token.cols);
    for (std::size_t step = 0; step * rows < made.tokens.size(); ++step) {
        bool any = false;
        for (std::size_t row = 0; row < held_.size(); ++row) {
            const Held& held = held_[row];
            const auto first = static_cast<std::size_t>(first_of(static_cast<int>(row)));
            if (!held.running || made.tokens[step * rows + first] < 0) continue;
            any = true;
            const auto length = static_cast<std::int64_t>(held.tokens.size() + step);
            const auto seen = static_cast<double>(std::min(length, bytes_.most_positions));
            bytes_read_ += bytes_.position * (seen + static_cast<double>(held.guess.size()));
        }
        if (any) bytes_read_ += bytes_.weights;
    }
}

void BatchDecoder::fail(int row) {
    const std::int32_t position = get(sequences_.lengths, row), id = get(sequences_.status, row);
    stop(row);
    throw NonFiniteError(
        text("the logit of token ", id, " is not finite, at position ", position, " of the sequence in row ", row));
}

BatchDecoder::Taken BatchDecoder::taken(int row, const DecodedSteps& made) const {
    const std::vector<std::int32_t>& guess = held_[static_cast<std::size_t>(row)].guess;
    const auto first = static_cast<std::size_t>(first_of(row)), rows = static_cast<std::size_t>(sequences_.token.cols);
    Taken taken;
    if (!guesses()) {
        for (std::size_t i = first; i < made.tokens.size() && made.tokens[i] >= 0; i += rows)
            taken.tokens.push_back(made.tokens[i]);
        taken.state = static_cast<RowState>(made.states[first]);
        taken.steps = static_cast<std::int64_t>(taken.tokens.size());
        return taken;
    }
    taken.steps = 1;
    for (std::size_t j = 0; j <= guess.size() && taken.state == RowState::running; ++j) {
        const std::int32_t token = made.tokens[first + j];
        taken.state = static_cast<RowState>(made.states[first + j]);
        if (token < 0) break;  // it failed: the next step begins with this row, which fails again
        taken.tokens.push_back(token);
        if (j < guess.size() && token != guess[j]) break;
    }
    return taken;
}

/// A failed sequence first hands out the tokens before, and fails with the next call, so that a failure is told at the
/// same token for any number of steps per call.
bool BatchDecoder::take(int row, const DecodedSteps& made, SequenceAdvance& advance) {
    const Taken now = taken(row, made);
    std::vector<std::int32_t>& all = held_[static_cast<std::size_t>(row)].tokens;
    for (std::vector<std::int32_t>* const to : {&advance.tokens, &all})
        to->insert(to->end(), now.tokens.begin(), now.tokens.end());
    advance.steps += now.steps;
    if (now.state == RowState::running) return true;
    if (now.state == RowState::failed) {
        if (advance.tokens.empty()) fail(row);
        return false;
    }
    advance.state = now.state == RowState::ended ? SequenceAdvance::State::ended : SequenceAdvance::State::length;
    stop(row);
    return false;
}

std::vector<SequenceAdvance> BatchDecoder::advance(int steps) {
    require(steps >= 1, "advance by ", steps, " steps: it takes at least 1");
    std::vector<SequenceAdvance> advances(held_.size());
    for (std::size_t row = 0; row < held_.size(); ++row) {
        if (held_[row].running) advances[row].state = SequenceAdvance::State::running;
    }
    bool more = any_running();
    while (more && steps > 0) {
        if (guesses()) place_guesses();
        const int now = guesses() ? 1 : std::min(steps, launches_->most_steps());
        const DecodedSteps made = launches_->run(now, interrupted);
        count_bytes(made);
        more = false;
        for (std::size_t row = 0; row < held_.size(); ++row) {
            if (held_[row].running) more |= take(static_cast<int>(row), made, advances[row]);
        }
        more = more && !interrupted();
        steps -= now;
    }
    return advances;
}

}  // namespace coda
