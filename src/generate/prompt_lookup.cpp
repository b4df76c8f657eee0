#include "src/generate/prompt_lookup.h"

#include <algorithm>

namespace coda {

std::vector<std::int32_t> guess_next(std::span<const std::int32_t> tokens, std::int64_t most) {
    const auto end = static_cast<std::int64_t>(tokens.size());
    const auto at = [&](std::int64_t i) { return tokens[static_cast<std::size_t>(i)]; };
    const auto agreeing = [&](std::int64_t place) {
        std::int64_t count = 0;
        while (count < std::min(place, kMostCompared) && at(place - 1 - count) == at(end - 1 - count)) ++count;
        return count;
    };
    std::int64_t best = 0, longest = 0;
    for (std::int64_t place = end - 1; place >= 1 && longest < kMostCompared; --place) {
        const std::int64_t length = agreeing(place);
        if (length > longest) {
            longest = length;
            best = place;
        }
    }
    std::vector<std::int32_t> guess;
    if (longest == 0) return guess;
    for (std::int64_t i = 0; i < most; ++i) guess.push_back(at(best + i % (end - best)));
    return guess;
}

}  // namespace coda
