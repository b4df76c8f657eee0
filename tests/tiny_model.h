// The models that tests begin with; a test that needs another extent changes it in its copy.
#pragma once

#include "src/config/config.h"

namespace coda::test {

/// A small GQA LLaMA whose sizes divide nothing: head_dim 8 (with 4 the half-split permutation is its own inverse and
/// hides a wrong direction).
inline ModelConfig tiny_model() {
    ModelConfig model;
    model.hidden_size = 16;
    model.intermediate_size = 20;
    model.num_hidden_layers = 2;
    model.num_attention_heads = 4;
    model.num_key_value_heads = 2;
    model.head_dim = 8;
    model.vocab_size = 37;
    model.rope_theta = 100;
    return model;
}

/// Yarn of tiny_model: its four pairs are slowed by none, a third, two thirds and all of the factor.
inline RopeScaling small_yarn() {
    return {
        .factor = 4, .original_max_position_embeddings = 40, .type = RopeType::yarn, .beta_fast = 4, .beta_slow = 0.5};
}

/// The columns of all matrices in layers are whole groups of 128 4-bit integers.
inline ModelConfig tiny_int4_model() {
    ModelConfig model = tiny_model();
    model.hidden_size = 128;
    model.intermediate_size = 256;
    model.head_dim = 32;
    return model;
}

/// The shape of Llama-3.2-1B with a head of its own.
inline ModelConfig llama1b_untied() {
    ModelConfig model;
    model.hidden_size = 2048;
    model.intermediate_size = 8192;
    model.num_hidden_layers = 16;
    model.num_attention_heads = 32;
    model.num_key_value_heads = 8;
    model.head_dim = 64;
    model.vocab_size = 128256;
    return model;
}

}  // namespace coda::test
