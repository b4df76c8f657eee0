// Suggestions for misspelled keys and flags.
#pragma once

#include <string>
#include <vector>

namespace coda {

/// The fewest insertions, deletions and substitutions of one character that turn `from` into `to` (Levenshtein
/// distance).
std::size_t edit_distance(const std::string& from, const std::string& to);

/// The first candidate at the least distance from `word`. A name that belongs to another section ("training.beta1" for
/// "optimizer.beta1", "--steps" for "--training.steps") counts as distance 1, and so do initials ("lr" for
/// "learning_rate"). `candidates` must not be empty.
const std::string& nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace coda
