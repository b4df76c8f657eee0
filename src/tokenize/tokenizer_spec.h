// A tokenizer as its file describes it: the steps from text to tokens and back.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/tokenize/added_tokens.h"

namespace coda {

/// The expression of a ByteLevel pre-tokenizer with use_regex.
inline constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Merge {
    std::uint32_t left = 0, right = 0, result = 0;
};

/// Changes the text of a stretch between added tokens.
struct NormalizerStep {
    enum class Kind : std::uint8_t { nfc, prepend, replace } kind = Kind::nfc;
    std::string pattern{};  // replace: what is replaced, literally
    std::string content{};  // what is put there, or before the stretch
};

/// What becomes of the matches of an expression and of what lies between them.
enum class SplitBehavior : std::uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// When Metaspace puts its character before a piece that does not begin with it: if the piece begins the text, always,
/// or never.
enum class PrependScheme : std::uint8_t { first, always, never };

/// Divides a piece of text, or changes it.
struct PreTokenizerStep {
    enum class Kind : std::uint8_t { split, metaspace } kind = Kind::split;
    std::string where{};  // for messages
    // split
    std::string regex{};
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;  // what lies between the matches is taken for the matches
    // metaspace
    std::string replacement{};  // of " "
    PrependScheme prepend = PrependScheme::always;
};

/// What a text that is decoded from its beginning lacks of the bytes of its tokens.
struct DecodedStart {
    std::string strip{};  // this character, up to `count` times
    std::int64_t count = 0;
    std::unordered_map<std::uint32_t, std::string> first{};  // the bytes of a first token, where they are others
};

struct TokenizerSpec {
    std::string file;                                             // for messages
    std::vector<NormalizerStep> normalizer{};                     // in order
    std::vector<PreTokenizerStep> pre_tokenizer{};                // each on every piece of the one before
    bool byte_level = false;                                      // tokens are made of bytes, not of characters
    std::unordered_map<std::string, std::uint32_t> vocabulary{};  // as the file spells it
    std::vector<Merge> merges{};                                  // by rank
    bool ignore_merges = false;                                   // a piece in the vocabulary is that token
    bool byte_fallback = false;              // a character without token is the tokens <0xHH> of its bytes
    std::optional<std::string> unk_token{};  // else stands for it; without one it is dropped
    bool fuse_unk = false;                   // one for a run
    std::vector<AddedToken> added{};
    std::vector<std::optional<std::string>> bytes{};  // by id: what a token is decoded to
    DecodedStart start{};
    nlohmann::json document{};  // the file without its model

    /// The largest id + 1.
    std::int64_t vocab_size() const { return static_cast<std::int64_t>(bytes.size()); }
};

}  // namespace coda
