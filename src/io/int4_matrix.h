// Matrices of 4-bit integers in a checkpoint folder: w = q scale, q in [-8, 7], a scale per row and kInt4Group columns.
//
// Layouts, of a matrix (N, K) whose weight would be NAME.weight:
//   compressed-tensors "pack-quantized"   NAME.weight_packed I32 (N, K/8): column 8 c + j of a row in bits 4 j to
//     (vllm-project/compressed-tensors)   4 j + 3 of word c, as q + 8. NAME.weight_scale (N, K/128).
//                                         NAME.weight_shape I64 [N, K]
//   GPTQ (ModelCloud/GPTQModel)           NAME.qweight I32 (K/8, N): column 8 r + j of row n in bits 4 j to 4 j + 3 of
//                                         word (r, n), as q + 8. NAME.scales (K/128, N). NAME.qzeros I32 (K/128, N/8):
//                                         all 7 (one less than the zero) or, in version 2, all 8. NAME.g_idx I32 (K):
//                                         k / 128
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/math/int4.h"
#include "src/io/safetensors.h"

namespace coda {

class Int4Matrix {
  public:
    /// Nothing where the folder has no such matrix. Throws Error naming the tensor where its parts do not fit: a shape,
    /// a type, zero points, an order of columns, or K that is no multiple of kInt4Group.
    static std::optional<Int4Matrix> find(const SafetensorsFolder& folder, const std::string& weight, std::int64_t rows,
                                          std::int64_t cols);

    std::int64_t rows() const { return rows_; }
    std::int64_t cols() const { return cols_; }

    /// The tensors that it consists of.
    const std::vector<std::string>& parts() const { return parts_; }

    /// Rows from `first` on, as many as the spans hold: a row has K / 8 words, in the layout of weight_packed, and
    /// K / 128 scales.
    void read_rows(std::int64_t first, std::span<std::uint32_t> words, std::span<float> scales) const;

  private:
    const StoredTensor* words_ = nullptr;
    const StoredTensor* scales_ = nullptr;
    bool transposed_ = false;  // as GPTQ stores them
    std::int64_t rows_ = 0, cols_ = 0;
    std::vector<std::string> parts_;
};

/// Elements [column, column + out.size()) of a row of codes, in the layout of weight_packed, each the product in float.
template <class Scale>
void unpack_int4(std::span<const std::uint32_t> words, std::span<const Scale> scales, std::int64_t column,
                 std::span<float> out) {
    for (float& value : out) {
        const std::uint32_t word = words[static_cast<std::size_t>(column / kInt4PerWord)];
        const auto code = static_cast<int>(word >> (4 * (column % kInt4PerWord)) & 15U);
        value = static_cast<float>(code - kInt4Zero) * scales[static_cast<std::size_t>(column / kInt4Group)];
        ++column;
    }
}

/// Whether a matrix of `cols` columns has whole groups only. One that has not stays in floats.
constexpr bool divides_into_groups(std::int64_t cols) { return cols % kInt4Group == 0; }

/// The number nearest to value / scale.
int int4_of(float value, Bf16 scale);
/// The scale of least square error among 36, from (largest magnitude) / 7 down to 0.3 of it; 1 of zeros. The
/// square error of column k is multiplied by weights[k], if there are weights.
Bf16 int4_scale_of(std::span<const float> group, std::span<const float> weights = {});
/// A row as codes and scales, in the layout of weight_packed and weight_scale: each group of kInt4Group columns rounded
/// to nearest by its scale. row.size() is a multiple of kInt4Group; all elements are finite.
void quantize_row(std::span<const float> row, std::span<std::uint32_t> words, std::span<Bf16> scales);

/// Reads elements of one matrix after another, many rows at a time, since the words of GPTQ's rows lie apart.
class Int4Reader {
  public:
    /// Elements [column, column + out.size()) of a row, each the product in float.
    void read(const Int4Matrix& matrix, std::int64_t row, std::int64_t column, std::span<float> out);
    /// A whole row's words and scales; scales of another type are rounded to bf16.
    void read(const Int4Matrix& matrix, std::int64_t row, std::span<std::uint32_t> words, std::span<Bf16> scales);

  private:
    struct Row {
        std::span<const std::uint32_t> words;
        std::span<const float> scales;
    };
    Row row_of(const Int4Matrix& matrix, std::int64_t row);

    const Int4Matrix* matrix_ = nullptr;
    std::int64_t first_ = 0;  // of the rows that are here
    std::vector<std::uint32_t> words_;
    std::vector<float> scales_;
};

}  // namespace coda
