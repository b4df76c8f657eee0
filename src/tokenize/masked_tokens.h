// A rendered conversation as tokens, and which of them count.
//
// A token counts if a byte of it is inside a {% generation %} block. With a template without such blocks it counts if a
// byte of it is an assistant's message, and so does the next special token, which ends the turn. Of an empty answer
// nothing counts.
//
// Special tokens are found only in the template's own text, never where a byte is a message's. What lies between them
// is encoded as one text, so a token may hold bytes of the template and of a message.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/tokenize/chat/template.h"
#include "src/tokenize/encoder.h"

namespace coda {

/// assistant: all that is an assistant's. last: only the last turn of it. all: every token.
enum class TrainOn : std::uint8_t { assistant, last, all };

struct MaskedTokens {
    std::vector<std::uint32_t> tokens;
    std::vector<std::uint8_t> mask;  // as src/io/token_mask.h has it; the first token begins a conversation
};

/// Each thread has its own. The tokenizer must outlive it.
class MaskedEncoder {
  public:
    explicit MaskedEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), encoder_(tokenizer) {}

    /// `counts`: per message, whether it may count. A block counts unless its message may not.
    MaskedTokens encode(const Rendered& rendered, const std::vector<bool>& counts, TrainOn train_on);

  private:
    const Tokenizer& tokenizer_;
    Encoder encoder_;
};

}  // namespace coda
