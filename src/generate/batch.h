// Sequences side by side: tokens from a decoder become text, until an end token, a stop text or a length.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "src/generate/decoder.h"
#include "src/generate/request.h"
#include "src/generate/stop_texts.h"
#include "src/generate/utf8_stream.h"
#include "src/text/codec.h"

namespace coda {

/// What a batch did so far. Times are only of the decoder's calls.
struct GenerationFigures {
    std::int64_t prompt_tokens = 0, tokens = 0, sequences = 0;
    std::int64_t steps =
        0;  // of sequences, those behind a stop text included; fewer than tokens where guesses came true
    double prefill_s = 0, decode_s = 0;
    double bytes_read = 0, peak_bytes_per_s = 0;  // of the steps, and of the device's memory: see Decoder
    std::optional<double> first_token_s{};        // of the first sequence, from the start of its prompt
};

class GenerationBatch {
  public:
    /// Gets each piece of a sequence's text when it is settled: whole characters, nothing of a stop text.
    using OnText = std::function<void(const GenerationRequest& request, std::string_view piece)>;

    /// All must outlive it.
    GenerationBatch(Decoder& decoder, TextCodec& codec, OnText on_text);

    int running() const { return running_; }
    bool full() const { return running_ == decoder_.batch(); }

    /// Begins a sequence in a free row. `end_tokens` end it and are no text.
    void start(const GenerationRequest& request, std::vector<std::int32_t> prompt, std::vector<std::int32_t> end_tokens,
               bool own_text = false);

    /// What step() should be asked for: one step where a sequence has no token yet, so that it is shown at once, else
    /// what the decoder makes at a time.
    int usual_steps() const;

    /// Up to `steps` steps for every sequence. Returns the answers of sequences that have ended, the first to end
    /// first. Throws NonFiniteError that names the sequences.
    std::vector<GenerationAnswer> step(int steps);

    /// Ends all sequences; their answers are cancelled, with what was made.
    std::vector<GenerationAnswer> cancel();

    const GenerationFigures& figures() const { return figures_; }

  private:
    using Clock = std::chrono::steady_clock;

    struct Sequence {
        GenerationRequest request;
        GenerationAnswer answer;
        std::vector<std::int32_t> end_tokens;
        std::function<std::string(std::int32_t)> bytes_of{};
        Utf8Stream characters{};
        StopTexts stop{};
        Clock::time_point started{};
    };

    void take(Sequence& sequence, std::int32_t token);
    void put(Sequence& sequence, const std::string& text);
    GenerationAnswer finish(std::size_t row, Finish why);

    Decoder& decoder_;
    TextCodec& codec_;
    OnText on_text_;
    std::vector<std::optional<Sequence>> rows_;
    int running_ = 0;
    double bytes_before_;  // that the decoder had read
    GenerationFigures figures_{};
};

}  // namespace coda
