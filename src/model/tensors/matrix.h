// Where a parameter lies in the flat segments, under which Hugging Face names, and what a weight matrix is: the
// declaration that a block makes once. Everything that walks over the matrices of a model (copies, scales, the
// optimizer's folds, import and export) walks over ParameterLayout::matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/dtype.h"

namespace coda {

/// A matrix or vector of the flat segment, as a GEMM or a norm uses it.
struct PackedTensor {
    std::int64_t offset = 0;  // elements from the start of the segment
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t count() const { return rows * cols; }
};

/// The parameters of a norm: its weight, and the bias of a LayerNorm, (1, d) each.
struct NormPlaces {
    PackedTensor weight;
    std::optional<PackedTensor> bias{};
};

/// A tensor under its Hugging Face name. Row r of it is contiguous in the segment at row_offset(r).
struct HfTensor {
    enum class Kind : std::uint8_t {
        matrix,
        norm_weight,  // this one and a bias are 1-D, of `count()` elements
        bias          // of a matrix or of a norm
    };
    enum class Order : std::uint8_t {
        plain,        // row r at row r
        rotary_half,  // row (head, i + b hd/2) at packed row (head, 2i + b)
        even,         // row r at packed row 2r (gate)
        odd,          // row r at packed row 2r + 1 (up)
    };
    std::string name;
    std::int64_t rows = 0;  // 1 for norms
    // 1 for biases of matrices and norms of heads: an element for each row of the matrix or head
    std::int64_t cols = 0;
    Kind kind = Kind::matrix;
    std::int64_t offset = 0;  // elements: packed row 0 of this tensor's part of the packed matrix
    Order order = Order::plain;
    std::int64_t head_dim = 0;  // of rotary_half
    double deviation = 1;       // of a matrix' initial elements, in initializer_range

    bool is_matrix() const { return kind == Kind::matrix; }
    std::int64_t row_offset(std::int64_t row) const;
    std::int64_t count() const { return rows * cols; }
};

/// A Hugging Face tensor's rows within a packed matrix.
struct HfRows {
    const char* name;
    std::int64_t rows;
    HfTensor::Order order = HfTensor::Order::plain;
    std::int64_t first = 0;  // packed row where its part begins
    std::int64_t head_dim = 0;
};

/// W (N, K) of z = x Wᵀ, or x Wᵀ + b with a bias b (N). With a norm before it, x is the normalised stream, and the
/// copies of W that GEMMs read carry the norm's weight gamma in their columns (NormFold). The bias beta of such a norm
/// comes in W beta, next to b.
///
/// The norm's backward pass takes its statistic from Σ (z - b - W beta) dz (kernels/ops.h).
struct WeightMatrix {
    const char* name;    // "gate_up": of its steps, scales and statistics
    PackedTensor place;  // rows and cols are declared, offset is the plan's
    std::optional<NormPlaces> norm{};
    bool has_bias = false;           // of every one of `tensors`: NAME.bias next to NAME.weight
    PackedTensor bias{};             // the plan's: (1, N), in the order of the rows of `place`
    DType gradient = DType::f8e4m3;  // the FP8 format of dz, where the matrix takes FP8
    bool rounds_output = false;      // whether z is then kept as FP8 codes
    bool centred = false;            // whether the stream that z is added to has mean 0 in every row (CentreColumns)
    double deviation = 1;            // of its initial elements, in initializer_range
    std::vector<HfRows> tensors{};
    int layer = -1;  // -1: of no layer; the plan's
};

}  // namespace coda
