// Sequences that the tests of generation run.
#pragma once

#include <vector>

#include "src/generate/decoder.h"

namespace coda::test {

using Tokens = std::vector<std::int32_t>;

inline SequenceStart sequence_of(const Tokens& prompt, std::int64_t max_tokens, const ChoiceOptions& choice) {
    return {.prompt = prompt, .choice = choice, .max_tokens = max_tokens, .end_tokens = {}};
}
inline SequenceStart sequence_of(const Tokens& prompt, std::int64_t max_tokens, std::uint64_t seed = 5) {
    return sequence_of(prompt, max_tokens, ChoiceOptions{.seed = seed});
}

/// Runs a sequence in `row` to its end, `steps` per call, and returns its tokens. run: how many steps it took.
inline Tokens tokens_of(Decoder& decoder, int row, const SequenceStart& sequence, int steps = 3,
                        std::int64_t* run = nullptr) {
    decoder.start(row, sequence);
    Tokens tokens;
    for (auto state = SequenceAdvance::State::running; state == SequenceAdvance::State::running;) {
        const SequenceAdvance advance = decoder.advance(steps).at(static_cast<std::size_t>(row));
        tokens.insert(tokens.end(), advance.tokens.begin(), advance.tokens.end());
        if (run != nullptr) *run += advance.steps;
        state = advance.state;
    }
    return tokens;
}

}  // namespace coda::test
