#include "src/generate/batch_decoder.h"

#include <algorithm>
#include <numeric>

#include "src/core/choice_options.h"
#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/engine/feed.h"

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
      running_(static_cast<std::size_t>(schedules.host.sequences.token.cols), false),
      lengths_(running_.size(), 0) {
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

void BatchDecoder::set(const View& per_row, int row, std::int32_t value) {
    executor_.upload(part_of(per_row, row, 1), &value);
}

std::int32_t BatchDecoder::get(const View& per_row, int row) {
    std::int32_t value = 0;
    executor_.download(part_of(per_row, row, 1), &value);
    return value;
}

bool BatchDecoder::any_running() const { return std::find(running_.begin(), running_.end(), true) != running_.end(); }

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
    executor_.upload(sequences_.seen.row_slice(row, 1), seen.data());
    executor_.upload(sequences_.end_tokens.row_slice(row, 1), end_tokens.data());
    executor_.upload(part_of(sequences_.options, row * ChooseToken::kOptionWords, ChooseToken::kOptionWords),
                     &sequence.choice);
    const std::int64_t room = context() - length;
    set(sequences_.limits, row, static_cast<std::int32_t>(length + std::min(sequence.max_tokens, room)));
    set(sequences_.token, row, prompt.back());
    set(sequences_.positions, row, static_cast<std::int32_t>(length - 1));
    set(sequences_.lengths, row, static_cast<std::int32_t>(length));
    set(sequences_.state, row, static_cast<std::int32_t>(RowState::running));
    running_[static_cast<std::size_t>(row)] = true;
    lengths_[static_cast<std::size_t>(row)] = length;
    executor_.finish();
}

void BatchDecoder::stop(int row) {
    check(row);
    if (!running_[static_cast<std::size_t>(row)]) return;
    running_[static_cast<std::size_t>(row)] = false;
    // An idle row looks up token 0 and attends to nothing.
    for (const View* view : {&sequences_.token, &sequences_.positions, &sequences_.lengths}) set(*view, row, 0);
    set(sequences_.state, row, static_cast<std::int32_t>(RowState::idle));
}

std::vector<float> BatchDecoder::logits(int row) {
    check(row);
    const View logits = sequences_.logits.row_slice(row, 1);
    const std::vector<double> values = download_vector(executor_, part_of(logits, 0, vocab_));
    return {values.begin(), values.end()};
}

void BatchDecoder::replace_newest(int row, std::int32_t token) {
    check(row);
    require(token >= 0 && token < vocab_, "the token ", token, " is outside of a vocabulary of ", vocab_);
    set(sequences_.token, row, token);
}

/// A step reads the weights once, and of each sequence that makes a token what it has so far and the token sees.
void BatchDecoder::count_bytes(const DecodedSteps& made) {
    for (std::size_t first = 0; first < made.tokens.size(); first += running_.size()) {
        bool any = false;
        for (std::size_t row = 0; row < running_.size(); ++row) {
            if (!running_[row] || made.tokens[first + row] < 0) continue;
            any = true;
            bytes_read_ += bytes_.position * static_cast<double>(std::min(lengths_[row]++, bytes_.most_positions));
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

/// A failed sequence first hands out the tokens before, and fails with the next call, so that a failure is told at the
/// same token for any number of steps per call.
bool BatchDecoder::take(int row, const DecodedSteps& made, SequenceAdvance& advance) {
    const auto at = static_cast<std::size_t>(row);
    for (std::size_t i = at; i < made.tokens.size() && made.tokens[i] >= 0; i += running_.size()) {
        advance.tokens.push_back(made.tokens[i]);
    }
    const auto state = static_cast<RowState>(made.states[at]);
    if (state == RowState::running) return true;
    if (state == RowState::failed) {
        if (advance.tokens.empty()) fail(row);
        return false;
    }
    advance.state = state == RowState::ended ? SequenceAdvance::State::ended : SequenceAdvance::State::length;
    stop(row);
    return false;
}

std::vector<SequenceAdvance> BatchDecoder::advance(int steps) {
    require(steps >= 1, "advance by ", steps, " steps: it takes at least 1");
    std::vector<SequenceAdvance> advances(running_.size());
    for (std::size_t row = 0; row < running_.size(); ++row) {
        if (running_[row]) advances[row].state = SequenceAdvance::State::running;
    }
    bool more = any_running();
    while (more && steps > 0) {
        const int now = std::min(steps, launches_->most_steps());
        const DecodedSteps made = launches_->run(now, interrupted);
        count_bytes(made);
        more = false;
        for (std::size_t row = 0; row < running_.size(); ++row) {
            if (running_[row]) more |= take(static_cast<int>(row), made, advances[row]);
        }
        more = more && !interrupted();
        steps -= now;
    }
    return advances;
}

}  // namespace coda
