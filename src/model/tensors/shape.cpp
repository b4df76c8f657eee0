#include "src/model/tensors/shape.h"

#include <cmath>

#include "kernels/core/integers.h"

namespace coda {

std::int64_t padded_vocab(const ModelConfig& model) {
    constexpr std::int64_t kVocabPadding = 64;
    return round_up(model.vocab_size, kVocabPadding);
}

double branch_deviation(const ModelConfig& model) {
    if (model.norm == NormKind::rmsnorm) return 1;
    return 1 / std::sqrt(2 * static_cast<double>(model.num_hidden_layers));
}

ModelShape model_shape(const ModelConfig& model, std::int64_t seq_len, std::int64_t micro_batch_size) {
    const std::int64_t hd = model.head_dim, heads = model.num_attention_heads, kv = model.num_key_value_heads;
    const bool rotates = model.qk_norm || model.position_embeddings == PositionEmbeddings::rope;
    return {.tokens = seq_len * micro_batch_size,
            .seq_len = seq_len,
            .width = model.hidden_size,
            .ffn = model.intermediate_size,
            .heads = heads,
            .kv_heads = kv,
            .head_dim = hd,
            .qkv_width = (heads + 2 * kv) * hd,
            .out_width = heads * hd,
            .rotated = rotates ? (heads + kv) * hd : 0,
            .vocab = model.vocab_size,
            .padded_vocab = padded_vocab(model),
            .window = model.sliding_window,
            .eps = model.rms_norm_eps};
}

}  // namespace coda
