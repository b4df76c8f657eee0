#include "src/model/master_weights.h"

#include <algorithm>

#include "kernels/core/error.h"

namespace coda {

void MasterWeights::read_int4_row(std::size_t tensor, std::int64_t /*row*/, std::span<std::uint32_t> /*words*/,
                                  std::span<Bf16> /*scales*/) const {
    throw Error(text("tensor ", tensor, " has no 4-bit integers"));
}

RowPart row_part(const HfTensor& tensor, std::int64_t row, std::int64_t first, std::int64_t count) {
    const std::int64_t offset = tensor.row_offset(row);
    const std::int64_t begin = std::max(offset, first), end = std::min(offset + tensor.cols, first + count);
    return {begin - offset, begin - first, std::max<std::int64_t>(0, end - begin)};
}

bool reaches(const HfTensor& tensor, std::int64_t first, std::int64_t count) {
    // In every order the first row lies first and the last one last.
    return tensor.row_offset(0) < first + count && tensor.row_offset(tensor.rows - 1) + tensor.cols > first;
}

}  // namespace coda
