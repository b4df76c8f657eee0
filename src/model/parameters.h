// Parameters: Hugging Face tensors and where their rows lie in the flat, packed segments.
//
// Master weights, gradients, moments and the working copy are flat segments with equal element offsets: matrices first
// (they decay), then norm weights. Each packed matrix is one GEMM operand:
//   embedding (Vp, d) | per layer: qkv (Nq, d), attn_out (d, H hd), gate_up (2f, d), down (d, f) | head (Vp, d) if
//   untied | per layer: attn_norm (d), mlp_norm (d) | final_norm (d)
// In the working copy alone qkv, gate_up and head carry the weight of the norm before them in their columns
// (NormFold, kernels/ops/update.h); of tied weights that is the embedding, whose rows are then looked up in the master.
// Packing is a permutation of rows: in q and k heads the rotate-half pair (i, i + hd/2) becomes the adjacent pair
// (2i, 2i + 1); gate and up rows interleave. Vp is vocab_size padded to a multiple of 64 with zero rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/optimizer/op.h"
#include "src/config/config.h"

namespace coda {

/// A matrix or vector of the flat segment, as a GEMM or a norm uses it.
struct PackedTensor {
    std::int64_t offset = 0;  // elements from the start of the segment
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t count() const { return rows * cols; }
};

struct LayerParameters {
    PackedTensor qkv, attn_out, gate_up, down;
    PackedTensor attn_norm, mlp_norm;
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
    std::int64_t head_dim = 0;

    std::int64_t row_offset(std::int64_t row) const;
    std::int64_t count() const { return rows * cols; }
};

struct ParameterLayout {
    PackedTensor embedding;
    std::vector<LayerParameters> layers;
    PackedTensor head;  // the embedding's own when tied
    PackedTensor final_norm;
    std::int64_t padded_vocab = 0;
    std::int64_t matrix_count = 0;  // elements that decay: [0, matrix_count)
    std::int64_t count = 0;         // elements of a segment, padding included
    std::int64_t parameters = 0;    // elements of the Hugging Face tensors (no padding)
    std::vector<HfTensor> tensors;  // every Hugging Face tensor once, in checkpoint order
    std::vector<NormFold> folds;    // matrices that follow a norm, by offset
};

ParameterLayout parameter_layout(const ModelConfig& model);

}  // namespace coda
