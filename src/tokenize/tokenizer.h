// A tokenizer: text to ids as Hugging Face's `tokenizers` encodes it without its post-processor, and back.
//
//   text -> added tokens taken out -> normalizer -> normalized added tokens taken out -> pre-tokenizer -> BPE
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenize/added_tokens.h"
#include "src/tokenize/bpe_model.h"
#include "src/tokenize/normalizer.h"
#include "src/tokenize/regex.h"
#include "src/tokenize/tokenizer_json.h"

namespace coda {

/// Immutable; threads share one.
class Tokenizer {
  public:
    /// Throws Error for a regular expression that is not supported.
    explicit Tokenizer(TokenizerSpec spec);
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;

    const std::string& file() const { return spec_.file; }
    const nlohmann::json& document() const { return spec_.document; }  // the file without its model
    std::int64_t vocab_size() const { return spec_.vocab_size(); }     // the largest id + 1

    /// The id of a token by its text: an added token, else one of the vocabulary, as the file spells it.
    std::optional<std::uint32_t> id_of(const std::string& token) const;

    /// Whether a token has this id.
    bool has(std::uint32_t id) const { return id < spec_.bytes.size() && spec_.bytes[id].has_value(); }

    /// Whether `id` is an added token.
    bool is_added(std::uint32_t id) const;

    /// Whether `id` is an added token that is marked special.
    bool is_special(std::uint32_t id) const { return id < special_.size() && special_[id]; }

    /// The text of an added token, as the file has it. Throws Error for an id that is none's.
    const std::string& content_of_added(std::uint32_t id) const;

    /// The bytes of a token wherever it stands, an added token as its text; see TokenStream for a text's beginning.
    /// Throws Error for an id that no token has.
    std::string_view bytes_of(std::uint32_t id) const;

    // What a text goes through, for the encoder and for the cuts of a long text.
    const AddedTokenFinder& added() const { return added_; }
    const AddedTokenFinder& normalized_added() const { return normalized_added_; }
    const Normalizer& normalizer() const { return normalizer_; }
    const std::vector<PreTokenizerStep>& steps() const { return spec_.pre_tokenizer; }
    const Regex& regex(std::size_t step) const { return *regexes_[step]; }
    const BpeModel& model() const { return model_; }
    const DecodedStart& start() const { return spec_.start; }

  private:
    TokenizerSpec spec_;
    Normalizer normalizer_;
    std::vector<std::unique_ptr<Regex>> regexes_;  // by step, null for one without
    BpeModel model_;
    AddedTokenFinder added_, normalized_added_;
    std::vector<bool> special_;  // by id
};

/// Tokens to bytes, one after another, as a new text: without what a decoder takes off the beginning of a text. All
/// other bytes are fixed, so that a text can be shown as it grows.
class TokenStream {
  public:
    /// The tokenizer must outlive it.
    explicit TokenStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer), strips_(tokenizer.start().count) {}

    /// The bytes that `id` adds. Throws Error for an id that no token has.
    std::string add(std::uint32_t id);

  private:
    const Tokenizer& tokenizer_;
    std::int64_t strips_ = 0;  // characters that may still be taken off
    bool begun_ = false;
};

}  // namespace coda
