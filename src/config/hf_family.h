// The model_types of Hugging Face that this program reads and writes: what each has that its config.json does not say,
// and transformers' defaults where a file omits a key.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "src/config/config.h"
#include "src/config/hf_reader.h"

namespace coda {

/// An activation function of a family's files; the MLP that has it.
struct HfActivation {
    const char* name;
    MlpKind mlp;
};

/// A key of a family's files that would change the mathematics, and its only value here.
struct HfFixedKey {
    const char* key;
    bool value;
};

struct HfFamily {
    const char *model_type, *architecture;
    std::int64_t max_position_embeddings;
    std::optional<std::int64_t> num_key_value_heads{};  // absent: as many as query heads
    std::optional<std::int64_t> sliding_window{};       // absent: it has no such key
    std::optional<std::int64_t> head_dim{};             // absent: hidden_size / num_attention_heads
    bool window_by_layers = false;                      // its file says which layers have windows
    bool attention_bias = false;                        // it always has biases of q, k and v
    bool attention_out_bias = false;                    // it always has a bias of o
    bool attention_bias_key = false;                    // its key attention_bias gives biases to q, k, v and o
    bool mlp_bias = false;                              // it always has biases of the MLP
    bool qk_norm = false;
    NormKind norm = NormKind::rmsnorm;
    double norm_eps = 1e-6;
    PositionEmbeddings position_embeddings = PositionEmbeddings::rope;
    bool tie_word_embeddings = false;
    int widths_of_mlp = 0;  // intermediate_size / hidden_size where a file has no intermediate_size; 0: it must have it
    std::span<const HfActivation> activations;  // the first one is the default
    std::span<const HfFixedKey> fixed;
    std::span<const HfKeyName> names{};
    std::span<const char* const> without{};   // keys of the model section, or of LLaMA's file, that its file has not
    std::span<const char* const> dropouts{};  // keys of probabilities, which are 0 in training here
};

/// The family of a config.json. Throws Error naming `file` for any other model_type, of known ones with what they have
/// that a LLaMA has not.
const HfFamily& hf_family_of(const nlohmann::json& hf, const std::string& file);

/// The family whose files can say this model; a null pointer where there is none, with the reason in `why`, which names
/// the key.
const HfFamily* hf_family_with(const ModelConfig& model, std::string& why);

}  // namespace coda
