// What tokens mean as text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/core/text_range.h"

namespace coda {

class TextCodec {
  public:
    virtual ~TextCodec() = default;
    virtual std::vector<std::int32_t> encode(const std::string& text) = 0;
    /// As encode(), but a special token that is spelled out with a byte of one of `messages`, in order, stays text.
    virtual std::vector<std::int32_t> encode_chat(const std::string& text, std::span<const TextRange> messages);
    /// The bytes of one token; a character may need several tokens.
    virtual std::string decode(std::int32_t token) = 0;
    /// The bytes of one token after another, as a new text: decode(), without what the tokenizer leaves out at the
    /// beginning of a text. The codec must outlive it.
    virtual std::function<std::string(std::int32_t)> text_stream();
    /// The token of this text, if the vocabulary has one.
    virtual std::optional<std::int32_t> id_of(const std::string& token) const;
    /// Whether a token is part of the text: not where it is a mark, such as an end of text, or where the vocabulary of
    /// the model is larger than the tokenizer's.
    virtual bool is_text(std::int32_t token) const;
};

/// Tokens that are bytes, as of a .txt file.
std::unique_ptr<TextCodec> make_byte_codec();

}  // namespace coda
