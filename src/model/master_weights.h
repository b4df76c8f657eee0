// fp32 master weights where they come from: read in parts, so that no second copy of the model is in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "src/model/parameters.h"

namespace coda {

/// The most that a reader of whole weights asks for at a time, in elements: 16 MiB.
inline constexpr std::int64_t kWeightsPart = std::int64_t{1} << 22;

class MasterWeights {
  public:
    virtual ~MasterWeights() = default;

    /// Elements [first, first + out.size()) of the flat segment of ParameterLayout.count elements. Padding is 0.
    virtual void read(std::int64_t first, std::span<float> out) const = 0;

    /// A row of the layout's Hugging Face tensor number `tensor`; out.size() is its `cols`.
    virtual void read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const = 0;

    /// Whether the layout's Hugging Face tensor number `tensor` consists of 4-bit integers.
    virtual bool is_int4(std::size_t /*tensor*/) const { return false; }
    /// A row of such a tensor: its `cols` codes, q + 8, eight to a word, the first one in the lowest bits; and its
    /// scales, one for every kInt4Group codes. Scales of another type are rounded to bf16.
    virtual void read_int4_row(std::size_t tensor, std::int64_t row, std::span<std::uint32_t> words,
                               std::span<Bf16> scales) const;
};

/// What elements [first, first + count) of the flat segment have of a tensor's row.
struct RowPart {
    std::int64_t column = 0;  // of the row
    std::int64_t at = 0;      // from `first`
    std::int64_t count = 0;

    /// Where it lies in what was read of the segment from `first` on.
    std::span<float> of(std::span<float> read) const {
        return read.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
    }
};

/// fn(tensor, row, part) for every row of the layout's Hugging Face tensors that has elements of [first, first +
/// count).
void for_each_row_part(const ParameterLayout& layout, std::int64_t first, std::int64_t count,
                       const std::function<void(std::size_t tensor, std::int64_t row, const RowPart& part)>& fn);

}  // namespace coda
