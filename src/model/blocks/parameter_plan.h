// Where parameters lie in the flat segments, and as what Hugging Face tensors: what a block declares of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/optimizer/op.h"

namespace coda {

/// A matrix or vector of the flat segment, as a GEMM or a norm uses it.
struct PackedTensor {
    std::int64_t offset = 0;  // elements from the start of the segment
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t count() const { return rows * cols; }
};

/// A tensor under its Hugging Face name. Row r of it is contiguous in the segment at row_offset(r).
struct HfTensor {
    enum class Order : std::uint8_t {
        plain,        // row r at row r
        rotary_half,  // row (head, i + b hd/2) at packed row (head, 2i + b)
        even,         // row r at packed row 2r (gate)
        odd,          // row r at packed row 2r + 1 (up)
    };
    std::string name;
    std::int64_t rows = 0;  // 1 for norm weights, which are 1-D tensors of `cols` elements
    std::int64_t cols = 0;
    bool matrix = true;
    std::int64_t offset = 0;  // elements: packed row 0 of this tensor's part of the packed matrix
    Order order = Order::plain;
    std::int64_t head_dim = 0;  // of rotary_half

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

/// A projection z = norm(x) Wᵀ. Its working copy carries the norm's weight gamma in its columns (NormFold).
///
/// The norm's backward pass takes its statistic from Σ z dz, summed where dz is made. kernels/ops.h states that
/// identity. It needs a z that is this GEMM alone: with a bias, z has a part that does not come from x̂.
struct Projection {
    const char* name;
    std::int64_t rows, cols;
    std::vector<HfRows> tensors;
    bool bias = false;
};

/// Places parameters one after the other: matrices from element 0 on, norm weights from `first_norm` on.
class ParameterPlan {
  public:
    explicit ParameterPlan(std::int64_t first_norm) : norm_end_(first_norm) {}

    /// Tensors that are declared from here on belong to layer l. Hugging Face lists a layer's norms after its
    /// matrices.
    void enter_layer(std::size_t l);
    void leave_layer();

    PackedTensor matrix(std::int64_t rows, std::int64_t cols, const std::vector<HfRows>& tensors);
    PackedTensor norm(std::int64_t width, const char* name);

    /// A matrix that follows a norm: one of its own, or one that another block has placed. Throws Error naming the
    /// projection when it has a bias.
    PackedTensor projection(const Projection& projection, const PackedTensor& norm);
    PackedTensor tied_projection(const Projection& projection, const PackedTensor& matrix, const PackedTensor& norm);

    std::int64_t matrix_end() const { return matrix_end_; }
    std::int64_t norm_end() const { return norm_end_; }
    const std::vector<HfTensor>& tensors() const { return tensors_; }  // in the order of a checkpoint
    std::vector<NormFold> folds() const;                               // by offset

  private:
    static PackedTensor place(std::int64_t& end, std::int64_t rows, std::int64_t cols);

    std::int64_t matrix_end_ = 0, norm_end_;
    std::string prefix_;
    bool in_layer_ = false;
    std::vector<HfTensor> tensors_, layer_norms_;
    std::vector<NormFold> folds_;
};

}  // namespace coda
