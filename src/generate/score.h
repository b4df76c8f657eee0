// The loss of a given text by decoding: what generation thinks of it, token by token, where --eval computes all at
// once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "src/generate/batch_decoder.h"

namespace coda {

struct Score {
    double loss = 0;  // nats per token, the mean over `tokens`
    std::int64_t tokens = 0;
};

/// Scores all of `text` but its first token, in row 0, a step per token. `logits`, if given, gets the logits that
/// predicted each token, (vocab). Throws Error unless there are 2 to context() tokens of the vocabulary, NonFiniteError
/// as Decoder::advance. Ends early at an interrupt.
Score score(BatchDecoder& decoder, std::span<const std::int32_t> text,
            const std::function<void(std::span<const float>)>& logits = {});

}  // namespace coda
