#include "src/config/nearest.h"

#include <algorithm>
#include <numeric>

namespace coda {

namespace {

// "steps" of "training.steps", "--training.steps" and "--steps".
std::string leaf(const std::string& word) {
    const auto dot = word.find_last_of('.');
    if (dot != std::string::npos) return word.substr(dot + 1);
    return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

// "lr" of "learning_rate"; empty for a single word.
std::string initials(const std::string& name) {
    std::string letters;
    for (std::size_t at = 0; at < name.size(); at = name.find('_', at)) {
        if (name[at] == '_') ++at;
        if (at < name.size()) letters += name[at];
    }
    return letters.size() > 1 ? letters : "";
}

std::size_t distance(const std::string& word, const std::string& candidate) {
    const std::string name = leaf(word), known = leaf(candidate);
    if (!name.empty() && name == initials(known)) return 1;
    return std::min(edit_distance(word, candidate), 1 + edit_distance(name, known));
}

}  // namespace

std::size_t edit_distance(const std::string& from, const std::string& to) {
    std::vector<std::size_t> row(to.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < from.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < to.size(); ++j) {
            const std::size_t substitution = diagonal + (from[i] == to[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({substitution, row[j] + 1, diagonal + 1});
        }
    }
    return row.back();
}

const std::string& nearest(const std::string& word, const std::vector<std::string>& candidates) {
    std::vector<std::size_t> distances;
    distances.reserve(candidates.size());
    for (const std::string& candidate : candidates) distances.push_back(distance(word, candidate));
    const auto best = std::min_element(distances.begin(), distances.end()) - distances.begin();
    return candidates[static_cast<std::size_t>(best)];
}

}  // namespace coda
