// Sizes that every block reads: the model's and a micro-batch's.
#pragma once

#include <cstdint>

#include "src/config/config.h"

namespace coda {

/// Rows of the embedding and the head: vocab_size rounded up to a multiple of 64, with zero rows.
std::int64_t padded_vocab(const ModelConfig& model);

/// The standard deviation of the initial weights of a matrix that ends a residual branch, in initializer_range. GPT-2's
/// is 1 / sqrt(branches), so that the stream's variance does not grow with the layers; LLaMA's of transformers is 1.
double branch_deviation(const ModelConfig& model);

struct ModelShape {
    std::int64_t tokens;   // M, of a micro-batch
    std::int64_t seq_len;  // T
    std::int64_t width;    // d
    std::int64_t ffn;      // f
    std::int64_t heads, kv_heads, head_dim;
    std::int64_t qkv_width;  // (H + 2 Hk) hd
    std::int64_t out_width;  // H hd
    std::int64_t rotated;    // (H + Hk) hd; 0 with learned positions, unless heads have a norm
    std::int64_t vocab;      // true vocabulary
    std::int64_t padded_vocab;
    std::int64_t window;  // keys that a token sees; 0: all before it
    double eps;

    /// The window where it is shorter than a sequence of that length; 0: none.
    std::int64_t window_within(std::int64_t length) const { return window < length ? window : 0; }
};
ModelShape model_shape(const ModelConfig& model, std::int64_t seq_len, std::int64_t micro_batch_size);

}  // namespace coda
