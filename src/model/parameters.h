// Parameters: Hugging Face tensors and where their rows lie in the flat, packed segments.
//
// Master weights, gradients, moments and the working copy are flat segments with equal element offsets: matrices first
// (they decay), then norm weights and biases. A model may lack what stands in brackets. Each packed matrix is a GEMM
// operand, a table for look-up, or both:
//   matrices          embedding (Vp, d), [position_embedding (max_position_embeddings, d)]
//     per layer       qkv (Nq, d), attn_out (d, H hd), gate_up (2f, d) or, with GELU, up (f, d), down (d, f)
//     at the end      [head (Vp, d)], if the embedding is not tied
//   norms and biases
//     per layer       attn_norm (d), [its bias (d)], [bias of qkv (Nq)], [norms of q and k heads (2, hd)],
//                     [bias of attn_out (d)], mlp_norm (d), [its bias (d)], [bias of up (f)], [bias of down (d)]
//     at the end      final_norm (d), [its bias (d)]
// Only in the working copy, qkv, gate_up or up, and the head carry the weight of the norm before them in their columns
// (NormFold, kernels/ops/optimizer/op.h). The head does so only with RMSNorm: a final LayerNorm is a separate pass. A
// tied head's matrix is the embedding, whose rows are then looked up in the master.
//
// Packing is a permutation of rows: in q and k heads the rotate-half pair (i, i + hd/2) becomes the adjacent pair
// (2i, 2i + 1), and so does the pair of weights of their norms; gate and up rows interleave. Vp is vocab_size padded to
// a multiple of 64 with zero rows.
//
// Each block declares its own (src/model/blocks); the layout is the walk over them.
#pragma once

#include <cstdint>
#include <vector>

#include "src/config/config.h"
#include "src/model/blocks/embedding.h"
#include "src/model/blocks/head.h"
#include "src/model/blocks/layer.h"

namespace coda {

struct ParameterLayout {
    EmbeddingBlock::Parameters embedding;
    std::vector<Layer::Parameters> layers;
    HeadBlock::Parameters head;
    std::int64_t matrix_count = 0;       // elements that decay: [0, matrix_count)
    std::int64_t count = 0;              // elements of a segment, padding included
    std::int64_t parameters = 0;         // elements of the Hugging Face tensors (no padding)
    std::vector<HfTensor> tensors;       // every Hugging Face tensor once, in checkpoint order
    std::vector<WeightMatrix> matrices;  // by offset
    std::vector<NormFold> folds;         // of the matrices that follow a norm, by offset

    const PackedTensor& embedding_table() const { return matrices.at(embedding.table).place; }
    /// The head's matrix is the embedding's.
    bool tied() const { return head.matrix == embedding.table; }
};

ParameterLayout parameter_layout(const ModelConfig& model);

/// The numbers of the Hugging Face tensors that a packed matrix consists of.
std::vector<std::size_t> tensors_of(const ParameterLayout& layout, const PackedTensor& matrix);

}  // namespace coda
