#include "src/core/occupancy.h"

#include <algorithm>

namespace coda {

void TakenRanges::take(std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    auto first = std::partition_point(ranges_.begin(), ranges_.end(), [&](const auto& r) { return r.second < begin; });
    auto last = first;
    for (; last != ranges_.end() && last->first <= end; ++last) {
        begin = std::min(begin, last->first);
        end = std::max(end, last->second);
    }
    if (first == last) {
        ranges_.insert(first, {begin, end});
        return;
    }
    *first = {begin, end};
    ranges_.erase(first + 1, last);
}

std::int64_t TakenRanges::first_free(std::int64_t from, std::int64_t bytes) const {
    auto range = std::partition_point(ranges_.begin(), ranges_.end(), [&](const auto& r) { return r.second <= from; });
    for (; range != ranges_.end() && range->first < from + bytes; ++range) from = range->second;
    return from;
}

Occupancy::Occupancy(std::int64_t times) {
    while (static_cast<std::int64_t>(leaves_) < times) leaves_ *= 2;
    nodes_.resize(2 * leaves_);
}

template <class Fn>
void Occupancy::for_each_part(const TimeSpan& span, Fn&& fn) const {
    std::size_t from = leaves_ + static_cast<std::size_t>(span.first);
    std::size_t to = leaves_ + static_cast<std::size_t>(span.last) + 1;
    for (; from < to; from /= 2, to /= 2) {
        if (from % 2 == 1) fn(from++);
        if (to % 2 == 1) fn(--to);
    }
}

std::int64_t Occupancy::first_free(std::span<const TimeSpan> life, std::int64_t bytes) const {
    std::vector<const TakenRanges*> sets;
    const auto add = [&](const TakenRanges& ranges) {
        if (!ranges.empty()) sets.push_back(&ranges);
    };
    for (const TimeSpan& span : life) {
        for_each_part(span, [&](std::size_t node) { add(nodes_[node].any); });
        // What covers a part from above covers its first or its last time.
        for (const std::int32_t time : {span.first, span.last}) {
            for (std::size_t node = leaves_ + static_cast<std::size_t>(time); node > 0; node /= 2) {
                add(nodes_[node].whole);
            }
        }
    }
    std::int64_t place = 0;
    for (std::size_t agreed = 0, next = 0; agreed < sets.size(); next = (next + 1) % sets.size()) {
        const std::int64_t found = sets[next]->first_free(place, bytes);
        agreed = found == place ? agreed + 1 : 1;
        place = found;
    }
    return place;
}

void Occupancy::take(std::span<const TimeSpan> life, std::int64_t begin, std::int64_t end) {
    for (const TimeSpan& span : life) {
        for_each_part(span, [&](std::size_t node) {
            nodes_[node].whole.take(begin, end);
            for (; node > 0; node /= 2) nodes_[node].any.take(begin, end);
        });
    }
}

}  // namespace coda
