// The textbook LLaMA in double precision, with biases, with norms of q and k, with a sliding window, with GELU in place
// of SwiGLU and with learned positions in place of RoPE if the model has them: the oracle for the schedule's loss and
// all gradients.
//
// Hugging Face layout and names, one matrix per projection, RMSNorm applied before its projections, rotate-half RoPE,
// repeated key/value heads. It shares nothing with the program but ModelConfig. Gradients come from a tape of scalar
// operations (tape.h), never from a formula of the model. All matrices are row-major; a weight is (out, in).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/config/config.h"

namespace coda::textbook {

/// Tensors by Hugging Face name ("model.layers.0.self_attn.q_proj.weight"), row-major in Hugging Face's shape. A tied
/// model has no "lm_head.weight". Gradients have the names and shapes of their weights.
using Weights = std::map<std::string, std::vector<double>>;

/// The tokens of one micro-batch, (batch, seq_len) row-major.
struct Batch {
    std::int64_t batch = 0;
    std::int64_t seq_len = 0;
    std::vector<int> tokens;
    std::vector<int> targets;        // negative: ignored
    std::vector<int> document;       // optional: document of each token; a token attends to its own document only.
                                     // Within a sequence the tokens of a document are adjacent.
    bool restart_positions = false;  // positions count from the document's first token, not from the sequence's
};

/// The shape of every weight of the model: {rows, columns}, or {width} for a norm or a bias.
std::map<std::string, std::vector<std::int64_t>> weight_shapes(const ModelConfig& config);

/// Whether `name` is a norm's weight, or a bias; the others are matrices.
bool is_norm(const std::string& name);
bool is_bias(const std::string& name);

/// Random weights with which every term of the model counts. Matrices: N(0, (gain / sqrt(columns))²); norms: N(1,
/// 0.3²); biases: N(0, 1). The same seed gives the same weights.
Weights random_weights(const ModelConfig& config, std::uint64_t seed, double gain = 1.6);

/// Rotation of pair i per position, in radians, i < head_dim / 2: rope_theta^(-2i / head_dim), rescaled by
/// rope_scaling.
std::vector<double> inverse_frequencies(const ModelConfig& config);

/// What q and k are multiplied by after their rotation: 1 but for yarn.
double attention_factor(const ModelConfig& config);

/// Σ cross entropy over the valid targets of all micro-batches / their number. Throws std::invalid_argument for a
/// missing, unexpected or wrongly sized weight, a bad batch, a token or target outside the vocabulary, or no valid
/// target.
double loss(const ModelConfig& config, const Weights& weights, const std::vector<Batch>& micro_batches);

struct Result {
    double loss = 0;
    Weights gradients;
};

/// The loss and its derivative with respect to every element of every weight. Throws as loss() does.
Result loss_and_gradients(const ModelConfig& config, const Weights& weights, const std::vector<Batch>& micro_batches);

/// (batch * seq_len, vocab_size) row-major. Ignores targets; throws as loss() does.
std::vector<double> logits(const ModelConfig& config, const Weights& weights, const Batch& batch);

}  // namespace coda::textbook
