#include "src/model/parameters.h"

#include "kernels/core/error.h"
#include "kernels/core/integers.h"

namespace coda {

namespace {

constexpr std::int64_t kVocabPadding = 64;
constexpr std::int64_t kSegmentAlignment = 64;  // elements: 128 bytes in bf16, as TMA and 16-byte vectors like it

class Segment {
  public:
    PackedTensor place(std::int64_t rows, std::int64_t cols) {
        PackedTensor tensor{end_, rows, cols};
        end_ = round_up(end_ + rows * cols, kSegmentAlignment);
        return tensor;
    }
    std::int64_t end() const { return end_; }

  private:
    std::int64_t end_ = 0;
};

}  // namespace

std::int64_t HfTensor::row_offset(std::int64_t row) const {
    switch (order) {
        case Order::plain: return offset + row * cols;
        case Order::even: return offset + 2 * row * cols;
        case Order::odd: return offset + (2 * row + 1) * cols;
        case Order::rotary_half: {
            const std::int64_t head = row / head_dim, in_head = row % head_dim, half = head_dim / 2;
            return offset + (head * head_dim + 2 * (in_head % half) + in_head / half) * cols;
        }
    }
    throw Error("unreachable row order");
}

ParameterLayout parameter_layout(const ModelConfig& model) {
    const std::int64_t d = model.hidden_size, f = model.intermediate_size, hd = model.head_dim;
    const std::int64_t q_rows = model.num_attention_heads * hd, kv_rows = model.num_key_value_heads * hd;

    ParameterLayout layout;
    layout.padded_vocab = round_up(model.vocab_size, kVocabPadding);
    layout.layers.resize(static_cast<std::size_t>(model.num_hidden_layers));

    Segment segment;
    layout.embedding = segment.place(layout.padded_vocab, d);
    for (LayerParameters& layer : layout.layers) {
        layer.qkv = segment.place(q_rows + 2 * kv_rows, d);
        layer.attn_out = segment.place(d, q_rows);
        layer.gate_up = segment.place(2 * f, d);
        layer.down = segment.place(d, f);
    }
    layout.head = model.tie_word_embeddings ? layout.embedding : segment.place(layout.padded_vocab, d);
    layout.matrix_count = segment.end();
    for (LayerParameters& layer : layout.layers) {
        layer.attn_norm = segment.place(1, d);
        layer.mlp_norm = segment.place(1, d);
    }
    layout.final_norm = segment.place(1, d);
    layout.count = segment.end();

    const auto fold = [&](const PackedTensor& matrix, const PackedTensor& norm) {
        layout.folds.push_back({matrix.offset, matrix.rows, matrix.cols, norm.offset});
    };
    if (model.tie_word_embeddings) fold(layout.head, layout.final_norm);
    for (const LayerParameters& layer : layout.layers) {
        fold(layer.qkv, layer.attn_norm);
        fold(layer.gate_up, layer.mlp_norm);
    }
    if (!model.tie_word_embeddings) fold(layout.head, layout.final_norm);

    const auto add = [&](std::string name, std::int64_t rows, std::int64_t cols, bool matrix, std::int64_t offset,
                         HfTensor::Order order = HfTensor::Order::plain) {
        layout.tensors.push_back({std::move(name), rows, cols, matrix, offset, order, hd});
        layout.parameters += rows * cols;
    };
    add("model.embed_tokens.weight", model.vocab_size, d, true, layout.embedding.offset);
    for (std::size_t l = 0; l < layout.layers.size(); ++l) {
        const LayerParameters& layer = layout.layers[l];
        const std::string prefix = text("model.layers.", l, ".");
        const std::int64_t qkv = layer.qkv.offset, gate_up = layer.gate_up.offset;
        add(prefix + "self_attn.q_proj.weight", q_rows, d, true, qkv, HfTensor::Order::rotary_half);
        add(prefix + "self_attn.k_proj.weight", kv_rows, d, true, qkv + q_rows * d, HfTensor::Order::rotary_half);
        add(prefix + "self_attn.v_proj.weight", kv_rows, d, true, qkv + (q_rows + kv_rows) * d);
        add(prefix + "self_attn.o_proj.weight", d, q_rows, true, layer.attn_out.offset);
        add(prefix + "mlp.gate_proj.weight", f, d, true, gate_up, HfTensor::Order::even);
        add(prefix + "mlp.up_proj.weight", f, d, true, gate_up, HfTensor::Order::odd);
        add(prefix + "mlp.down_proj.weight", d, f, true, layer.down.offset);
        add(prefix + "input_layernorm.weight", 1, d, false, layer.attn_norm.offset);
        add(prefix + "post_attention_layernorm.weight", 1, d, false, layer.mlp_norm.offset);
    }
    add("model.norm.weight", 1, d, false, layout.final_norm.offset);
    if (!model.tie_word_embeddings) add("lm_head.weight", model.vocab_size, d, true, layout.head.offset);
    return layout;
}

}  // namespace coda
