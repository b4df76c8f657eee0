// Writes llm.c evaluation shards for tests.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace coda {

using Words = std::vector<std::uint16_t>;

struct ChoiceExample {
    std::uint16_t label;
    Words context;
    std::vector<Words> completions;
};

/// The words of an example as they stand in a shard.
inline Words example_words(const ChoiceExample& example, std::size_t index) {
    const auto word = [](std::size_t value) { return static_cast<std::uint16_t>(value); };
    Words words = {65535, 0, word(index), example.label, word(example.completions.size())};
    const auto add = [&](const Words& tokens) {
        words.push_back(word(tokens.size()));
        words.insert(words.end(), tokens.begin(), tokens.end());
    };
    add(example.context);
    for (const Words& completion : example.completions) add(completion);
    words[1] = word(words.size() * 2);
    return words;
}

/// A shard of these words behind a header that says `count` examples.
inline std::string evaluation_bytes(const Words& words, std::size_t count) {
    std::array<std::int32_t, 256> header{20240522, 1, static_cast<std::int32_t>(count)};
    std::string bytes(sizeof header + words.size() * 2, '\0');
    std::memcpy(bytes.data(), header.data(), sizeof header);
    std::memcpy(bytes.data() + sizeof header, words.data(), words.size() * 2);
    return bytes;
}

inline std::string evaluation_bytes(const std::vector<ChoiceExample>& examples) {
    Words all;
    for (std::size_t i = 0; i < examples.size(); ++i) {
        const Words words = example_words(examples[i], i);
        all.insert(all.end(), words.begin(), words.end());
    }
    return evaluation_bytes(all, examples.size());
}

}  // namespace coda
