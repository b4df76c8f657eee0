// The tokens that follow a prompt, in a session of a configuration: what --sample and samples during training run.
//
// While the text fits into training.seq_len, a Decoder makes them, with a cache. Beyond that, and behind a token that
// begins another document under data.document_mask, the model sees a window of the text that moves with each token, and
// Pass::sample computes all of it again. The draws have the numbers of positions in the text, whichever of the two
// chooses.
#pragma once

#include "src/core/decoder_options.h"
#include "src/generate/slot_decoder.h"
#include "src/train/sampling.h"
#include "src/train/session.h"

namespace coda {

class TextSampler {
  public:
    /// The session runs Pass::sample and the passes of Mode::generate, for sequences of training.seq_len. Where its
    /// operations are timed, the decoder runs passes, unless `options` ask for the fused kernel.
    TextSampler(Session& session, DecoderOptions options);
    TextSampler(const TextSampler&) = delete;
    TextSampler& operator=(const TextSampler&) = delete;

    /// As Sampler::sample.
    void sample(std::vector<std::int32_t> prompt, const SamplingOptions& options,
                const std::function<void(std::int32_t)>& token);

  private:
    bool fits(const std::vector<std::int32_t>& prompt) const;

    std::int32_t separator_;  // -1: documents are not kept apart
    SlotDecoder decoder_;
    Sampler sampler_;
};

}  // namespace coda
