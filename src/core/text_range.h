// Parts of a text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace coda {

/// Bytes [begin, end).
struct TextRange {
    std::size_t begin = 0, end = 0;
};

/// Whether a byte of [begin, end) is in one of `ranges`, which are in order and do not overlap.
inline bool touches(std::span<const TextRange> ranges, std::size_t begin, std::size_t end) {
    const auto after = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                        [](std::size_t byte, const TextRange& range) { return byte < range.end; });
    return begin < end && after != ranges.end() && after->begin < end;
}

/// Whether every byte of [begin, end) is.
inline bool covers(std::span<const TextRange> ranges, std::size_t begin, std::size_t end) {
    const auto after = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                        [](std::size_t byte, const TextRange& range) { return byte < range.end; });
    for (auto range = after; range != ranges.end() && range->begin <= begin && begin < end; ++range) begin = range->end;
    return begin >= end;
}

}  // namespace coda
