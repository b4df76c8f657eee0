#include "src/generate/batch.h"

#include <algorithm>
#include <utility>

#include "src/core/errors.h"

namespace coda {

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

GenerationBatch::GenerationBatch(Decoder& decoder, TextCodec& codec, OnText on_text)
    : decoder_(decoder),
      codec_(codec),
      on_text_(std::move(on_text)),
      rows_(static_cast<std::size_t>(decoder.batch())),
      bytes_before_(decoder.bytes_read()) {
    figures_.peak_bytes_per_s = decoder.peak_bytes_per_s();
}

void GenerationBatch::start(const GenerationRequest& request, std::vector<std::int32_t> prompt,
                            std::vector<std::int32_t> end_tokens, bool own_text) {
    const auto free = std::find(rows_.begin(), rows_.end(), std::nullopt);
    require(free != rows_.end(), "every row of the decoder has a sequence");
    const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
    Sequence sequence{.request = request,
                      .answer = {.id = request.id, .prompt_tokens = prompt_tokens},
                      .end_tokens = end_tokens,
                      .stop = StopTexts(request.stop),
                      .started = Clock::now()};
    decoder_.start(static_cast<int>(free - rows_.begin()), {.prompt = std::move(prompt),
                                                            .choice = request.choice,
                                                            .max_tokens = request.max_tokens,
                                                            .end_tokens = std::move(end_tokens)});
    sequence.bytes_of = own_text ? codec_.text_stream() : [this](std::int32_t token) { return codec_.decode(token); };
    figures_.prefill_s += seconds_since(sequence.started);
    figures_.prompt_tokens += prompt_tokens;
    ++figures_.sequences;
    *free = std::move(sequence);
    ++running_;
}

void GenerationBatch::put(Sequence& sequence, const std::string& text) {
    if (text.empty()) return;
    sequence.answer.text += text;
    on_text_(sequence.request, text);
}

void GenerationBatch::take(Sequence& sequence, std::int32_t token) {
    sequence.answer.tokens.push_back(token);
    ++figures_.tokens;
    const auto& ends = sequence.end_tokens;
    if (std::find(ends.begin(), ends.end(), token) != ends.end() || !codec_.is_text(token)) return;
    put(sequence, sequence.stop.add(sequence.characters.add(sequence.bytes_of(token))));
}

GenerationAnswer GenerationBatch::finish(std::size_t row, Finish why) {
    Sequence sequence = std::move(*rows_[row]);
    rows_[row].reset();
    --running_;
    if (!sequence.stop.stopped()) put(sequence, sequence.stop.add(sequence.characters.finish()));
    if (!sequence.stop.stopped()) put(sequence, sequence.stop.finish());
    sequence.answer.finish = why;
    sequence.answer.ms = 1000 * seconds_since(sequence.started);
    return std::move(sequence.answer);
}

int GenerationBatch::usual_steps() const {
    const auto waits = [](const auto& sequence) { return sequence && sequence->answer.tokens.empty(); };
    return std::any_of(rows_.begin(), rows_.end(), waits) ? 1 : decoder_.steps_per_call();
}

std::vector<GenerationAnswer> GenerationBatch::step(int steps) {
    const Clock::time_point begin = Clock::now();
    std::vector<SequenceAdvance> made;
    try {
        made = decoder_.advance(steps);
    } catch (const NonFiniteError& error) {
        std::string ids;
        for (std::size_t row = 0; row < rows_.size(); ++row) {
            if (rows_[row]) ids += text(ids.empty() ? "" : ", ", "row ", row, ": ", rows_[row]->request.id.dump());
        }
        throw NonFiniteError(text(error.what(), " (sequences: ", ids, ")"));
    }
    figures_.decode_s += seconds_since(begin);
    figures_.bytes_read = decoder_.bytes_read() - bytes_before_;
    std::vector<std::pair<std::size_t, GenerationAnswer>> ended;  // after this many tokens of this call
    for (std::size_t row = 0; row < rows_.size(); ++row) {
        if (!rows_[row]) continue;
        Sequence& sequence = *rows_[row];
        figures_.steps += made[row].steps;
        if (!figures_.first_token_s && !made[row].tokens.empty()) {
            figures_.first_token_s = seconds_since(sequence.started);
        }
        std::size_t taken = 0;
        while (taken < made[row].tokens.size() && !sequence.stop.stopped()) take(sequence, made[row].tokens[taken++]);
        const SequenceAdvance::State state = made[row].state;
        if (state == SequenceAdvance::State::running && !sequence.stop.stopped()) continue;
        if (state == SequenceAdvance::State::running) decoder_.stop(static_cast<int>(row));
        const bool stopped = sequence.stop.stopped() || state == SequenceAdvance::State::ended;
        ended.emplace_back(taken, finish(row, stopped ? Finish::stop : Finish::length));
    }
    std::stable_sort(ended.begin(), ended.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<GenerationAnswer> answers;
    for (auto& [taken, answer] : ended) answers.push_back(std::move(answer));
    return answers;
}

std::vector<GenerationAnswer> GenerationBatch::cancel() {
    std::vector<GenerationAnswer> answers;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
        if (!rows_[row]) continue;
        decoder_.stop(static_cast<int>(row));
        answers.push_back(finish(row, Finish::cancelled));
    }
    return answers;
}

}  // namespace coda
