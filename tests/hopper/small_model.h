// A small model for the GPU, with weights and tokens for it.
#pragma once

#include <random>

#include "src/model/parameters.h"
#include "tests/oracle/textbook.h"
#include "tests/tiny_model.h"

namespace coda::test {

/// Sizes that are multiples only of what the kernels need: ragged tiles in rows and columns, a padded vocabulary.
inline ModelConfig small_model(std::int64_t head_dim, bool tied, bool bias = false, bool norms = false,
                               std::int64_t window = 0) {
    ModelConfig model = tiny_model();
    model.hidden_size = 264;
    model.intermediate_size = 328;
    model.num_hidden_layers = 4;
    model.head_dim = head_dim;
    model.vocab_size = 1009;
    model.rope_theta = 10000;
    model.tie_word_embeddings = tied;
    model.attention_bias = bias;
    model.qk_norm = norms;
    model.sliding_window = window;
    return model;
}

/// Of small_model's vocabulary.
inline std::vector<std::int32_t> random_tokens(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::int32_t> tokens(count);
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 1009);
    return tokens;
}

inline textbook::Weights random_weights(const ModelConfig& model, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(0, 0.05);
    textbook::Weights weights;
    for (const HfTensor& tensor : parameter_layout(model).tensors) {
        for (std::int64_t i = 0; i < tensor.count(); ++i) {
            weights[tensor.name].push_back(tensor.kind == HfTensor::Kind::norm_weight ? 1 + normal(random)
                                                                                      : normal(random));
        }
    }
    return weights;
}

}  // namespace coda::test
