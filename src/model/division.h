// How the flat parameters are divided among the ranks of a team (ZeRO-1). Each rank has all gradients and the whole
// working copy. It has master weights and moments of its parts only, and updates these parts.
//
// A bucket is what is exchanged at once: a layer's matrices, or a piece of the embedding or of the head that is no
// larger. It is divided into N equal parts of a multiple of kPartUnit elements; part r belongs to rank r. The few
// elements left over at a bucket's end (none if its size is a multiple of N kPartUnit) and the weights of norms are
// shared: every rank has them and updates them in the same way, from the sum of all ranks' gradients. With one rank
// everything is shared, and nothing is exchanged.
#pragma once

#include <cstdint>
#include <vector>

#include "src/model/parameters.h"

namespace coda {

inline constexpr std::int64_t kPartUnit = 64;  // elements: parts begin at multiples of 128 bytes in every type

/// Elements of the flat segments.
struct ElementRange {
    std::int64_t first = 0, count = 0;
    std::int64_t end() const { return first + count; }
};

struct Bucket {
    std::int64_t first = 0;
    std::int64_t part = 0;  // elements of a rank
    ElementRange part_of(std::int64_t rank) const { return {first + rank * part, part}; }
};

/// Elements that a rank has in its segments of master weights and moments, at `at` and after.
struct OwnRange {
    std::int64_t first = 0, count = 0, at = 0;
};

class Division {
  public:
    Division() = default;
    /// Rank `rank` of `ranks`. Throws Error where a rank would have nothing.
    Division(const ParameterLayout& layout, int rank, int ranks);

    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    bool divides() const { return ranks_ > 1; }

    /// By their first elements.
    const std::vector<Bucket>& buckets() const { return buckets_; }
    /// By their first elements, without norms; then the weights of norms, all of them.
    const std::vector<ElementRange>& shared() const { return shared_; }
    /// Elements of the largest part.
    std::int64_t largest_part() const { return largest_part_; }

    /// What the rank has, by its place: the model's elements in their order.
    const std::vector<OwnRange>& own() const { return own_; }
    std::int64_t own_count() const { return own_.back().at + own_.back().count; }
    /// Elements of the model. Norms, which every rank has, are the last ones.
    std::int64_t count() const { return own_.back().first + own_.back().count; }
    /// Where its segments have `count` elements from the model's element `first` on. Throws Error where they have not.
    std::int64_t place_of(std::int64_t first, std::int64_t count) const;

  private:
    int rank_ = 0, ranks_ = 1;
    std::int64_t largest_part_ = 0;
    std::vector<Bucket> buckets_;
    std::vector<ElementRange> shared_;
    std::vector<OwnRange> own_;
};

}  // namespace coda
