#include "src/config/hf_family.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/core/errors.h"

namespace coda {

namespace {

constexpr HfActivation kSilu[] = {{"silu", MlpKind::swiglu}};
constexpr HfActivation kGelu[] = {
    {"gelu_new", MlpKind::gelu_tanh}, {"gelu_pytorch_tanh", MlpKind::gelu_tanh}, {"gelu", MlpKind::gelu_exact}};

constexpr HfFixedKey kPlainMlp[] = {{"mlp_bias", false}};
constexpr HfFixedKey kPlainScores[] = {
    {"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}, {"add_cross_attention", false}};

// n_ctx is what older readers, and llama.cpp's converter, take for n_positions.
constexpr HfKeyName kGpt2Names[] = {{"hidden_size", "n_embd"},
                                    {"intermediate_size", "n_inner"},
                                    {"num_hidden_layers", "n_layer"},
                                    {"num_attention_heads", "n_head"},
                                    {"rms_norm_eps", "layer_norm_epsilon"},
                                    {"max_position_embeddings", "n_positions"},
                                    {"max_position_embeddings", "n_ctx"},
                                    {"hidden_act", "activation_function"}};
constexpr const char* kNotInGpt2[] = {"num_key_value_heads", "head_dim",    "attention_bias", "mlp_bias",
                                      "rope_theta",          "rope_scaling"};
constexpr const char* kDropout[] = {"attention_dropout"};
constexpr const char* kGpt2Dropouts[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};

constexpr HfFamily kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .max_position_embeddings = 2048,
     .attention_bias_key = true,
     .activations = kSilu,
     .fixed = kPlainMlp,
     .dropouts = kDropout},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .max_position_embeddings = 131072,
     .num_key_value_heads = 8,
     .sliding_window = 4096,
     .activations = kSilu,
     .fixed = kPlainMlp,
     .dropouts = kDropout},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .max_position_embeddings = 32768,
     .num_key_value_heads = 32,
     .sliding_window = 4096,
     .window_by_layers = true,
     .attention_bias = true,
     .activations = kSilu,
     .fixed = kPlainMlp,
     .dropouts = kDropout},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .max_position_embeddings = 32768,
     .num_key_value_heads = 32,
     .sliding_window = 4096,
     .head_dim = 128,
     .window_by_layers = true,
     .qk_norm = true,
     .activations = kSilu,
     .fixed = kPlainMlp,
     .dropouts = kDropout},
    {.model_type = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .max_position_embeddings = 1024,
     .attention_bias = true,
     .attention_out_bias = true,
     .mlp_bias = true,
     .norm = NormKind::layernorm,
     .norm_eps = 1e-5,
     .position_embeddings = PositionEmbeddings::learned,
     .tie_word_embeddings = true,
     .widths_of_mlp = 4,
     .activations = kGelu,
     .fixed = kPlainScores,
     .names = kGpt2Names,
     .without = kNotInGpt2,
     .dropouts = kGpt2Dropouts},
};

/// Why a model that people have is not one of these; by the beginning of its model_type.
constexpr std::pair<const char*, const char*> kOtherModels[] = {
    {"smollm3", "layers without rotary embedding"},
    {"granite", "multipliers of embedding, attention, residuals and logits"},
    {"qwen2_moe", "experts"},
    {"qwen2_", "a part for images or sound"},
    {"qwen3_moe", "experts"},
    {"qwen3_", "a part for images or sound, or layers of another kind"},
    {"olmo2", "norms after its blocks"},
    {"olmo3", "norms after its blocks"},
    {"phi3", "q, k, v and gate, up as one matrix each"},
    {"gemma", "norms with 1 + weight, GELU and a scaled embedding"},
    {"cohere", "blocks in parallel and LayerNorm"},
    {"mixtral", "experts"},
    {"deepseek", "experts or latent attention"},
    {"gpt_oss", "experts and attention sinks"},
    {"gpt_neox", "blocks in parallel and partial rotary embedding"},
    {"gpt", "another attention or MLP than gpt2"},
    {"llama4", "experts and layers without rotary embedding"},
    {"mistral3", "a part for images"},
    {"phi", "LayerNorm and blocks in parallel"},
    {"olmo", "LayerNorm without weights"},
    {"starcoder2", "LayerNorm, biases and another MLP"},
};

/// Of a model with RMSNorm; empty where it is one of the families'.
std::string alien_rmsnorm(const ModelConfig& model) {
    if (model.position_embeddings == PositionEmbeddings::learned)
        return "model.position_embeddings is \"learned\" in a LLaMA";
    if (model.mlp != MlpKind::swiglu)
        return text("model.mlp is ", Codec<MlpKind>::write(model.mlp).dump(), " in a LLaMA");
    if (model.attention_out_bias && !model.attention_bias)
        return "model.attention_out_bias is true without model.attention_bias";
    if (model.attention_out_bias && model.sliding_window > 0)
        return text("model.sliding_window is ", model.sliding_window, " with model.attention_out_bias");
    return "";
}

/// Of a model with LayerNorm; empty where it is a gpt2.
std::string alien_layernorm(const ModelConfig& model) {
    constexpr const char* kWith = " in a model with LayerNorm";
    if (model.position_embeddings != PositionEmbeddings::learned)
        return text("model.position_embeddings is \"rope\"", kWith);
    for (const auto& [key, value] : {std::pair("attention_bias", model.attention_bias),
                                     {"attention_out_bias", model.attention_out_bias},
                                     {"mlp_bias", model.mlp_bias}}) {
        if (!value) return text("model.", key, " is false", kWith);
    }
    if (model.num_key_value_heads != model.num_attention_heads)
        return text("model.num_key_value_heads is ", model.num_key_value_heads, " of ", model.num_attention_heads,
                    kWith);
    if (model.head_dim * model.num_attention_heads != model.hidden_size)
        return text("model.head_dim is ", model.head_dim, ", not hidden_size / num_attention_heads,", kWith);
    if (model.sliding_window > 0) return text("model.sliding_window is ", model.sliding_window, kWith);
    return "";
}

}  // namespace

const HfFamily& hf_family_of(const nlohmann::json& hf, const std::string& file) {
    require(hf.is_object(), file, ": expected an object, found ", found_text(hf));
    const nlohmann::json type = hf.value("model_type", nlohmann::json());
    for (const HfFamily& family : kFamilies) {
        if (type == family.model_type) return family;
    }
    std::string why;
    for (const auto& [begin, has] : kOtherModels) {
        if (!type.is_string() || !type.get<std::string>().starts_with(begin)) continue;
        why = text(", which has ", has);
        break;
    }
    throw Error(text(file, ": ",
                     hf.contains("model_type") ? "model_type is " + found_text(type) : "there is no model_type", why,
                     "; only \"llama\", \"mistral\", \"qwen2\", \"qwen3\" and \"gpt2\" are supported"));
}

const HfFamily* hf_family_with(const ModelConfig& model, std::string& why) {
    why = model.norm == NormKind::layernorm ? alien_layernorm(model) : alien_rmsnorm(model);
    if (!why.empty()) {
        why += ", which no model_type has that this program writes";
        return nullptr;
    }
    return std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const HfFamily& each) {
        const bool biases = each.attention_bias_key ? model.attention_bias == model.attention_out_bias
                                                    : model.attention_bias == each.attention_bias &&
                                                          model.attention_out_bias == each.attention_out_bias;
        return each.norm == model.norm && biases && each.qk_norm == model.qk_norm &&
               (each.sliding_window || model.sliding_window == 0);
    });
}

}  // namespace coda
