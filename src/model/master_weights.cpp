#include "src/model/master_weights.h"

#include <algorithm>

#include "kernels/core/error.h"

namespace coda {

namespace {

RowPart row_part(const HfTensor& tensor, std::int64_t row, std::int64_t first, std::int64_t count) {
    const std::int64_t offset = tensor.row_offset(row);
    const std::int64_t begin = std::max(offset, first), end = std::min(offset + tensor.cols, first + count);
    return {begin - offset, begin - first, std::max<std::int64_t>(0, end - begin)};
}

/// Whether any row of the tensor may have elements of [first, first + count).
bool reaches(const HfTensor& tensor, std::int64_t first, std::int64_t count) {
    // In every order the first row lies first and the last one last.
    return tensor.row_offset(0) < first + count && tensor.row_offset(tensor.rows - 1) + tensor.cols > first;
}

}  // namespace

void MasterWeights::read_int4_row(std::size_t tensor, std::int64_t /*row*/, std::span<std::uint32_t> /*words*/,
                                  std::span<Bf16> /*scales*/) const {
    throw Error(text("tensor ", tensor, " has no 4-bit integers"));
}

void for_each_row_part(const ParameterLayout& layout, std::int64_t first, std::int64_t count,
                       const std::function<void(std::size_t, std::int64_t, const RowPart&)>& fn) {
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        const HfTensor& tensor = layout.tensors[t];
        if (!reaches(tensor, first, count)) continue;
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            const RowPart part = row_part(tensor, row, first, count);
            if (part.count > 0) fn(t, row, part);
        }
    }
}

}  // namespace coda
