// The steps of a tokenizer.json before and after its model.
#pragma once

#include "src/tokenize/json_part.h"
#include "src/tokenize/tokenizer_spec.h"

namespace coda {

/// Adds the normalizer's steps to `spec`. Throws Error naming what is malformed or not supported.
void read_normalizer(const JsonPart& part, TokenizerSpec& spec);

/// Adds the pre-tokenizer's steps to `spec`. Throws as read_normalizer.
void read_pre_tokenizer(const JsonPart& part, TokenizerSpec& spec);

/// What the decoder makes of tokens.
class TokenDecoder {
  public:
    /// Throws as read_normalizer.
    TokenDecoder(const JsonPart& part, bool byte_level);

    /// The bytes of a token, wherever it stands. An added token of a byte-level vocabulary is its own text.
    std::string bytes_of(const std::string& token, bool added) const;

    /// Sets spec.start and, of the tokens, `token` with `id`, the bytes at the beginning of a text.
    void add_start(const std::string& token, std::uint32_t id, DecodedStart& start) const;

  private:
    struct Step {
        enum class Kind : std::uint8_t { byte_level, byte_fallback, replace, strip } kind = Kind::byte_level;
        std::string pattern{}, content{};
        std::int64_t begin = 0, end = 0;  // strip: up to so many from each end
    };
    void read_step(const JsonPart& part, bool& fused);

    std::vector<Step> steps_;
    std::string strip_{};  // from the beginning of a text, up to count_ times
    std::int64_t count_ = 0;
    std::string dropped_{};  // from the first token, everywhere
};

}  // namespace coda
