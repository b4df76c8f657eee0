// Suggestions for misspelled keys and flags.
#pragma once

#include <string>
#include <vector>

namespace coda {

/// Fewest insertions, deletions and substitutions of one character that turn `from` into `to` (Levenshtein distance).
std::size_t edit_distance(const std::string& from, const std::string& to);

/// The first candidate at the least distance from `word`. A name that belongs to another section ("training.beta1" for
/// "optimizer.beta1", "--steps" for "--training.steps") is at distance 1, and so is one of initials ("lr" for
/// "learning_rate"). `candidates` is not empty.
const std::string& nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace coda
