// A Hugging Face tokenizer.json, read strictly: byte-level BPE of the GPT-2, Llama-3 and Qwen2 families.
//
//   normalizer     null, NFC
//   pre_tokenizer  ByteLevel {use_regex: true} (GPT-2's expression), or Sequence [Split {Regex, Isolated},
//                  ByteLevel {use_regex: false}]; never add_prefix_space
//   model          BPE without dropout, byte_fallback, continuing_subword_prefix or end_of_word_suffix, whose
//                  vocabulary has all 256 bytes; ignore_merges either way; merges as "a b" or ["a", "b"]
//   added_tokens   without single_word, lstrip, rstrip
//   post_processor ByteLevel, TemplateProcessing or a Sequence of these; not run: the beginning and end of a document
//                  are marked as the command line says
//   decoder        null, ByteLevel
//
// Everything else is refused by name, since the tokens would differ from the tokens of the tokenizer's own library.
#pragma once

#include <cstdint>
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

struct TokenizerSpec {
    std::string file;                                             // for messages
    std::unordered_map<std::string, std::uint32_t> vocabulary{};  // bytes -> id: what BPE can produce
    std::vector<std::string> bytes{};                             // by id; empty if there is no such token
    std::vector<Merge> merges{};                                  // by rank
    std::vector<AddedToken> added{};
    std::string regex{};
    bool ignore_merges = false;  // a pre-token that is in the vocabulary is that token
    bool nfc = false;

    /// The largest id + 1.
    std::int64_t vocab_size() const { return static_cast<std::int64_t>(bytes.size()); }
};

/// Throws Error naming `file` and the key or part that is malformed or not supported.
TokenizerSpec parse_tokenizer(const std::string& content, const std::string& file);

/// parse_tokenizer of a file's content.
TokenizerSpec read_tokenizer(const std::string& path);

}  // namespace coda
