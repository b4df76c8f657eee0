// Guesses of the tokens to come, from what a sequence has had before ("prompt lookup").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coda {

/// The longest match that guess_next() looks for, in tokens.
inline constexpr std::int64_t kMostCompared = 16;

/// A guess of the `most` tokens that follow `tokens`: what follows the earlier place with the longest match with the
/// end of `tokens`, of up to kMostCompared tokens. Of equally long matches it takes the latest. Where fewer than `most`
/// tokens follow the place, these are repeated. The guess is empty where the last token was not there before. It takes
/// O(tokens) time.
std::vector<std::int32_t> guess_next(std::span<const std::int32_t> tokens, std::int64_t most);

}  // namespace coda
