#include "src/engine/int4_units.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/math/int4.h"

namespace coda {

namespace {

/// Codes q + kInt4Zero of four neighbouring columns, from the lowest bits on, as a word of a unit has them (int4_code).
constexpr std::uint32_t spread(std::uint32_t codes) {
    const std::uint32_t bytes =
        (codes & 0xfU) | (codes & 0xf0U) << 4U | (codes & 0xf00U) << 8U | (codes & 0xf000U) << 12U;
    return bytes ^ 0x08080808U;  // in two's complement
}
static_assert(spread(0xd98b) == (0x3U << int4_code(0, 0).bit | 0x0U << int4_code(0, 1).bit |
                                 0x1U << int4_code(0, 2).bit | 0x5U << int4_code(0, 3).bit));

}  // namespace

std::vector<std::size_t> int4_matrices(const ParameterLayout& layout, const MasterWeights& weights) {
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < layout.matrices.size(); ++i) {
        const PackedTensor& place = layout.matrices[i].place;
        const std::vector<std::size_t> tensors = tensors_of(layout, place);
        const bool whole = place.rows % kInt4Rows == 0 && place.cols % kInt4Group == 0;
        if (whole && i != layout.embedding.table && !tensors.empty() &&
            std::all_of(tensors.begin(), tensors.end(), [&](std::size_t t) { return weights.is_int4(t); }))
            numbers.push_back(i);
    }
    return numbers;
}

std::vector<std::uint32_t> int4_units(const ParameterLayout& layout, const WeightMatrix& matrix,
                                      const MasterWeights& weights) {
    const std::int64_t rows = matrix.place.rows, cols = matrix.place.cols;
    require(rows % kInt4Rows == 0 && cols % kInt4Group == 0, matrix.name, ": ", rows, " x ", cols,
            " is not a matrix of whole units");
    const std::int64_t words = cols / kInt4PerWord, groups = cols / kInt4Group;
    // Rows in the order of the packed matrix; padding has codes of 0 and scales of 0.
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(rows * words), 0x88888888U);
    std::vector<Bf16> scales(static_cast<std::size_t>(rows * groups), Bf16(0.0F));
    for (const std::size_t t : tensors_of(layout, matrix.place)) {
        for (std::int64_t row = 0; row < layout.tensors[t].rows; ++row) {
            const std::int64_t at = (layout.tensors[t].row_offset(row) - matrix.place.offset) / cols;
            weights.read_int4_row(
                t, row, std::span(codes).subspan(static_cast<std::size_t>(at * words), static_cast<std::size_t>(words)),
                std::span(scales).subspan(static_cast<std::size_t>(at * groups), static_cast<std::size_t>(groups)));
        }
    }
    std::vector<std::uint32_t> units(static_cast<std::size_t>(rows / kInt4Rows * groups * kInt4UnitWords), 0U);
#pragma omp parallel for
    for (std::int64_t tile = 0; tile < rows / kInt4Rows; ++tile)
        for (std::int64_t row = 0; row < kInt4Rows; ++row) {
            const std::int64_t from = tile * kInt4Rows + row;
            for (std::int64_t group = 0; group < groups; ++group) {
                std::uint32_t* const unit = units.data() + (tile * groups + group) * kInt4UnitWords;
                const auto place = [&](const Int4Place& to, std::uint32_t bits) { unit[to.word] |= bits << to.bit; };
                for (int column = 0; column < kInt4Group; column += kInt4PerWord) {
                    const std::uint32_t word =
                        codes[static_cast<std::size_t>(from * words + (group * kInt4Group + column) / kInt4PerWord)];
                    place(int4_code(static_cast<int>(row), column), spread(word & 0xffffU));
                    place(int4_code(static_cast<int>(row), column + 4), spread(word >> 16U));
                }
                place(int4_scale(static_cast<int>(row)), scales[static_cast<std::size_t>(from * groups + group)].bits);
            }
        }
    return units;
}

}  // namespace coda
