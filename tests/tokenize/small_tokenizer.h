// A byte-level tokenizer small enough to know by heart.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/core/utf8.h"
#include "src/tokenize/byte_alphabet.h"
#include "src/tokenize/encoder.h"

namespace coda {

/// "a" or "Ġ" for one byte.
inline std::string spelled(unsigned char byte) {
    std::string out;
    append_utf8(out, byte_alphabet()[byte]);
    return out;
}

/// A tokenizer.json like GPT-2's: byte b is token b, merge i makes token 256 + i, and <|end|>, <|endless|> follow. With
/// a regex, like Llama 3's.
inline nlohmann::json small_tokenizer_json(const std::vector<std::string>& merges, const std::string& regex = "") {
    nlohmann::json vocab = nlohmann::json::object();
    for (int byte = 0; byte < 256; ++byte) vocab[spelled(static_cast<unsigned char>(byte))] = byte;
    for (const std::string& merge : merges) {
        std::string token = merge;
        token.erase(token.find(' '), 1);
        const std::size_t id = vocab.size();
        vocab[token] = id;
    }
    nlohmann::json added = nlohmann::json::array();
    for (const char* name : {"<|end|>", "<|endless|>", "<|end"}) {
        added.push_back({{"id", vocab.size() + added.size()}, {"content", name}, {"special", true}});
    }
    nlohmann::json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", regex.empty()}};
    nlohmann::json pre_tokenizer = byte_level;
    if (!regex.empty()) {
        const nlohmann::json split = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
        pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
    }
    return {{"added_tokens", added},
            {"normalizer", nullptr},
            {"pre_tokenizer", pre_tokenizer},
            {"post_processor", nullptr},
            {"decoder", {{"type", "ByteLevel"}}},
            {"model", {{"type", "BPE"}, {"ignore_merges", !regex.empty()}, {"vocab", vocab}, {"merges", merges}}}};
}

inline TokenizerSpec small_spec(const std::vector<std::string>& merges, const std::string& regex = "") {
    return parse_tokenizer(small_tokenizer_json(merges, regex).dump(), "small.json");
}

}  // namespace coda
