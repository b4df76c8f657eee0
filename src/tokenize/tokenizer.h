// A tokenizer: text to ids as Hugging Face's `tokenizers` encodes it without its post-processor, and back.
//
//   text -> added tokens taken out -> normalizer -> normalized added tokens taken out -> regular expression -> BPE
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/tokenize/bpe.h"
#include "src/tokenize/regex.h"
#include "src/tokenize/token_cache.h"
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
    std::int64_t vocab_size() const { return spec_.vocab_size(); }  // the largest id + 1

    /// The id of a token by its text: an added token, else one of the vocabulary.
    std::optional<std::uint32_t> id_of(const std::string& token) const;

    /// Whether a token has this id.
    bool has(std::uint32_t id) const { return id < spec_.bytes.size() && !spec_.bytes[id].empty(); }

    /// Whether `id` is an added token that is marked special.
    bool is_special(std::uint32_t id) const;

    /// The bytes of a token, an added token as its text. Throws Error for an id that no token has.
    std::string_view bytes_of(std::uint32_t id) const;

    /// Whether a long text may be encoded in pieces (see cuts.h): the expression belongs to a known family.
    bool can_be_cut() const { return can_be_cut_; }

    /// Whether an added token lies at or within [begin, end] of `text`, where a cut must not be made.
    bool added_token_touches(std::string_view text, std::size_t begin, std::size_t end) const;
    std::size_t longest_added_token() const { return std::max(added_.longest(), normalized_added_.longest()); }

  private:
    friend class Encoder;
    TokenizerSpec spec_;
    Regex regex_;
    MergeTable merges_;
    std::array<std::uint32_t, 256> byte_ids_{};
    AddedTokenFinder added_, normalized_added_, plain_, normalized_plain_;
    bool can_be_cut_ = false;
};

/// A special token that is spelled out in a text: found as that token, as `tokenizers` do, or text like any other.
enum class SpecialTokens : std::uint8_t { found, plain };

/// Encodes. Each thread has its own. The tokenizer must outlive it.
class Encoder {
  public:
    explicit Encoder(const Tokenizer& tokenizer, SpecialTokens special = SpecialTokens::found);

    /// Appends the ids of `text`, valid UTF-8, without its last `lookahead` bytes, which the regular expression sees
    /// but which are not encoded: the text continues with them after a cut. Throws Error where a token lies across the
    /// cut.
    void encode(std::string_view text, std::size_t lookahead, std::vector<std::uint32_t>& out);
    void encode(std::string_view text, std::vector<std::uint32_t>& out) { encode(text, 0, out); }

  private:
    void normalize(std::string_view text, std::size_t end, std::vector<std::uint32_t>& out);
    void split(std::string_view text, std::size_t end, std::vector<std::uint32_t>& out);
    void encode_word(std::string_view word, std::vector<std::uint32_t>& out);

    const Tokenizer& tokenizer_;
    const AddedTokenFinder &added_, &normalized_added_;  // the tokens that are looked for
    RegexScanner regex_;
    BytePairEncoder pairs_;
    TokenCache cache_;
};

}  // namespace coda
