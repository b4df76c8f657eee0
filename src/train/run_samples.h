// Samples of the model during training, for log, console and report. They read the weights and have a cache and inputs
// of their own, so a run computes the same with them and without.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/engine/session.h"
#include "src/generate/text_sampler.h"
#include "src/io/log_records.h"
#include "src/text/codec.h"

namespace coda {

/// What the samples of a run follow, and how they are read.
struct RunPrompts {
    struct Start {
        std::optional<std::string> text;   // as given; absent without a codec
        std::vector<std::int32_t> tokens;  // shorter than training.seq_len
    };
    std::shared_ptr<TextCodec> codec;  // null: samples have no text
    std::vector<Start> starts;
    std::vector<std::int32_t> end_tokens{};  // each ends a sample
    std::string note{};                      // what begins a text, and why; may be empty
};

/// The prompts of samples.prompts, begun and ended as coda_generate does with the run's folder: the tokenizer's files
/// in data.tokenizer's folder decide (src/io/text_marks.h, generation_config.json), else model.bos_token_id and
/// model.eos_token_id. With data.document_mask a prompt begins at its last document, which is all that the model would
/// see. Throws UsageError, naming the key, if a prompt has no first token, is text without a codec, has a token beyond
/// the vocabulary, or leaves no room in training.seq_len. `resume` as of text_codec.
RunPrompts run_prompts(const Config& config, bool resume);

/// The passes of a training run: Mode::train's, and with samples.interval also Mode::generate's.
PassSet training_passes(const Config& config);

class RunSamples {
  public:
    /// The session has training_passes(). Throws Error without prompts.
    RunSamples(Session& session, std::shared_ptr<const RunPrompts> prompts, const DecoderOptions& decoder);

    /// Calls made(sample) for one sample after another, in the order of the prompts. Sample i has the seed samples.seed
    /// + i at every step, so it shows what training changed. It ends after samples.tokens, where training.seq_len is
    /// full, at an end token or, with data.document_mask, where a document begins. Throws NonFiniteError, naming
    /// step and sample, when a logit is not finite.
    void make(std::int64_t step, const std::function<void(const SampleRecord&)>& made);

  private:
    std::shared_ptr<const RunPrompts> prompts_;
    TextSampler sampler_;
    SamplingOptions options_;
};

/// 'sample at step 100: "Once upon a time"', in one line; without text the token ids.
std::string sample_line(const SampleRecord& record);

/// The options of samples during training.
ChoiceOptions choice_of(const SamplesConfig& samples);

}  // namespace coda
