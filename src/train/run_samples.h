// Samples of the model during training, for log, console and report. They read the weights and the tokens that are fed;
// a step feeds its own, so a run computes the same with them and without.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/io/log_records.h"
#include "src/train/sampling.h"
#include "src/train/session.h"

namespace coda {

/// Makes the tokens that follow a prompt: Sampler::sample, or what does the same faster.
using SampleText = std::function<void(std::vector<std::int32_t> prompt, const SamplingOptions& options,
                                      const std::function<void(std::int32_t)>& token)>;

/// What the samples of a run follow, how they are read, and what makes them.
struct RunPrompts {
    struct Start {
        std::optional<std::string> text;  // as it is given; absent without a codec
        std::vector<std::int32_t> tokens;
    };
    std::shared_ptr<TextCodec> codec;  // null: samples have no text
    std::vector<Start> starts;
    std::function<SampleText(Session&)> sampler;  // in a session with training_passes()
};

/// Of samples.prompts, without `sampler`. Throws UsageError, naming the key, where there is nothing to begin with, or
/// text and no codec.
RunPrompts run_prompts(const Config& config, std::shared_ptr<TextCodec> codec);

/// The passes of a training run: those of Mode::train, and with samples.interval Pass::sample and
/// generation.
PassSet training_passes(const Config& config);

class RunSamples {
  public:
    /// The session has training_passes(). Throws Error where there are no prompts.
    RunSamples(Session& session, std::shared_ptr<const RunPrompts> prompts);

    /// Calls made(sample) for one sample after another, in the order of the prompts. Sample i has the seed samples.seed
    /// + i at every step, so it shows what training changed. It ends at samples.tokens, at model.eos_token_id or, with
    /// data.document_mask, where a document begins. Throws NonFiniteError, naming step and sample, when a logit is not
    /// finite.
    void make(std::int64_t step, const std::function<void(const SampleRecord&)>& made);

  private:
    std::shared_ptr<const RunPrompts> prompts_;
    SampleText sampler_;
    SamplingOptions options_;
};

/// 'sample at step 100: "Once upon a time"', in one line; without text the token ids.
std::string sample_line(const SampleRecord& record);

/// The options of samples during training.
ChoiceOptions choice_of(const SamplesConfig& samples);

}  // namespace coda
