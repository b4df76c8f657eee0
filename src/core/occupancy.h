// Which bytes of an arena are taken at which times: finds the lowest place that is free for a whole life.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace coda {

/// Times [first, last], both included.
struct TimeSpan {
    std::int32_t first = 0, last = -1;
};

/// Byte ranges that are taken, in order; ranges that touch or overlap are one.
class TakenRanges {
  public:
    bool empty() const { return ranges_.empty(); }
    void take(std::int64_t begin, std::int64_t end);

    /// The lowest place at or after `from` that has `bytes` free bytes.
    std::int64_t first_free(std::int64_t from, std::int64_t bytes) const;

  private:
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;  // [begin, end)
};

/// A segment tree over the times. A query looks at O(log times) sets of ranges for each of its spans. Neighbours in
/// time mostly lie side by side in the arena, so that a set holds few ranges.
class Occupancy {
  public:
    explicit Occupancy(std::int64_t times);

    /// The lowest offset of `bytes` bytes that nobody has taken at any time of `life`.
    std::int64_t first_free(std::span<const TimeSpan> life, std::int64_t bytes) const;

    /// [begin, end) is taken at every time of `life`.
    void take(std::span<const TimeSpan> life, std::int64_t begin, std::int64_t end);

  private:
    struct Node {
        TakenRanges whole;  // taken at all times of the node: it is a part of the span
        TakenRanges any;    // taken at some of its times: a part of the span is the node or lies below it
    };

    /// Calls fn(node) for the largest nodes that a span is made of.
    template <class Fn>
    void for_each_part(const TimeSpan& span, Fn&& fn) const;

    std::size_t leaves_ = 1;
    std::vector<Node> nodes_;  // node n has children 2n and 2n + 1; leaf t is leaves_ + t
};

}  // namespace coda
