// Where several ranks have the sums of squares that make the gradient norm: a row of sums for each rank's parts, bucket
// by bucket, then the sums of the shared elements.
#pragma once

#include "kernels/ops/optimizer/op.h"
#include "src/core/buffers.h"
#include "src/model/division.h"

namespace coda {

class SquareSums {
  public:
    explicit SquareSums(const Division& division) : division_(division) {
        for (const Bucket& bucket : division.buckets()) row_ += SumSquares::sums_of(bucket.part);
    }

    std::int64_t count() const {
        std::int64_t count = of_ranks();
        for (const ElementRange& range : division_.shared()) count += SumSquares::sums_of(range.count);
        return count;
    }
    /// The rows of all ranks.
    std::int64_t of_ranks() const { return row_ * division_.ranks(); }

    /// Of this rank's part of division.buckets()[index]; `squares`: (1, count()).
    View of_bucket(const View& squares, std::size_t index) const {
        std::int64_t at = row_ * division_.rank();
        for (std::size_t i = 0; i < index; ++i) at += SumSquares::sums_of(division_.buckets()[i].part);
        return part_of(squares, at, SumSquares::sums_of(division_.buckets()[index].part));
    }
    /// Of division.shared()[index].
    View of_shared(const View& squares, std::size_t index) const {
        std::int64_t at = of_ranks();
        for (std::size_t i = 0; i < index; ++i) at += SumSquares::sums_of(division_.shared()[i].count);
        return part_of(squares, at, SumSquares::sums_of(division_.shared()[index].count));
    }

  private:
    const Division& division_;
    std::int64_t row_ = 0;  // sums of a rank's parts
};

}  // namespace coda
