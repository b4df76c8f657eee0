// The tokens that follow a prompt, in a session of a configuration: what samples during training run.
#pragma once

#include "kernels/math/sampling.h"
#include "src/core/decoder_options.h"
#include "src/engine/session.h"
#include "src/generate/batch_decoder.h"

namespace coda {

struct SamplingOptions {
    std::int64_t tokens = 0;                 // how many
    ChoiceOptions choice{};                  // how each is chosen; valid
    std::vector<std::int32_t> end_tokens{};  // any of these is the last one
};

class TextSampler {
  public:
    /// The session runs the passes of Mode::generate, for sequences of training.seq_len.
    TextSampler(Session& session, const DecoderOptions& options);
    TextSampler(const TextSampler&) = delete;
    TextSampler& operator=(const TextSampler&) = delete;

    /// Hands up to options.tokens tokens that follow `prompt` to `token`, each at once, as long as the text fits into
    /// training.seq_len. Throws NonFiniteError when a logit is not finite.
    void sample(const std::vector<std::int32_t>& prompt, const SamplingOptions& options,
                const std::function<void(std::int32_t)>& token);

  private:
    BatchDecoder decoder_;
};

}  // namespace coda
