#include "src/config/config.h"

#include <nlohmann/json.hpp>

#include "kernels/core/f8.h"
#include "src/config/retired.h"
#include "src/config/schema.h"
#include "src/core/errors.h"

namespace coda {

namespace {

template <class... Parts>
void check(bool condition, const Parts&... parts) {
    if (!condition) throw UsageError(text(parts...));
}

void check_required(const nlohmann::json& document) {
    std::string missing;
    int count = 0;
    for (const Key& key : schema()) {
        if (!key.required || key.find(document) != nullptr) continue;
        missing += (count++ == 0 ? "" : ", ") + key.path();
    }
    check(count == 0, "missing key", count == 1 ? " " : "s ", missing, " (give it in the config file or as a flag: --",
          missing.substr(0, missing.find(',')), " VALUE)");
}

void derive(Config& config, const std::string& name) {
    ModelConfig& model = config.model;
    if (model.num_key_value_heads == 0) model.num_key_value_heads = model.num_attention_heads;
    if (model.head_dim == 0) {
        check(model.hidden_size % model.num_attention_heads == 0, "model.hidden_size ", model.hidden_size,
              " is not divisible by model.num_attention_heads ", model.num_attention_heads, "; give model.head_dim");
        model.head_dim = model.hidden_size / model.num_attention_heads;
    }
    if (model.max_position_embeddings == 0) model.max_position_embeddings = config.training.seq_len;
    if (config.output.directory.empty()) config.output.directory = default_directory(name);
}

void validate_token(const ModelConfig& model, const std::optional<std::int64_t>& token, const char* name) {
    check(!token || *token < model.vocab_size, "model.", name, " ", token.value_or(0),
          " is outside of model.vocab_size ", model.vocab_size);
}

void validate(const ModelConfig& model) {
    check(model.num_attention_heads % model.num_key_value_heads == 0, "model.num_attention_heads ",
          model.num_attention_heads, " is not divisible by model.num_key_value_heads ", model.num_key_value_heads);
    check(model.head_dim % 2 == 0, "model.head_dim ", model.head_dim, " is odd; rotary embedding needs pairs");
    check(!model.qk_norm || !model.attention_bias,
          "model.qk_norm and model.attention_bias are both true; a model has norms of q and k or biases, not both");
    check(!model.rope_scaling || model.position_embeddings == PositionEmbeddings::rope,
          "model.rope_scaling is given, and model.position_embeddings \"learned\" has no RoPE; leave out one of them");
    check(!model.rope_scaling || model.rope_scaling->type != RopeType::yarn || model.rope_theta > 1,
          "model.rope_theta is ", model.rope_theta,
          ", and rope_type \"yarn\" asks how often a pair turns, for which it must be more than 1");
    check(!model.mlp_bias || model.mlp != MlpKind::swiglu,
          "model.mlp_bias is true, and the projections of model.mlp \"swiglu\" have no biases here; leave it out, or "
          "take \"gelu_tanh\" or \"gelu_exact\"");
    check(model.norm == NormKind::rmsnorm || model.mlp != MlpKind::swiglu,
          "model.norm is \"layernorm\", and model.mlp \"swiglu\" takes no bias of a norm here; take \"rmsnorm\", or "
          "\"gelu_tanh\" or \"gelu_exact\"");
    check(model.norm == NormKind::rmsnorm || !model.qk_norm,
          "model.norm is \"layernorm\" and model.qk_norm is true; norms of q and k go with \"rmsnorm\" only");
    validate_token(model, model.bos_token_id, "bos_token_id");
    for (const std::int64_t token : model.eos_token_id) validate_token(model, token, "eos_token_id");

    // Element counts and offsets are 64-bit integers; this bound keeps them far from overflow when they are multiplied.
    constexpr double kMaxParameters = 0x1p40;
    const double d = static_cast<double>(model.hidden_size), f = static_cast<double>(model.intermediate_size);
    const double heads = static_cast<double>(model.num_attention_heads + model.num_key_value_heads);
    const double block = d * (2 * heads * static_cast<double>(model.head_dim) + 3 * f);
    const double rows = 2 * static_cast<double>(model.vocab_size) + static_cast<double>(model.max_position_embeddings);
    const double count = static_cast<double>(model.num_hidden_layers) * block + d * rows;
    check(count < kMaxParameters, "model: about ", count, " parameters; this program takes fewer than ",
          kMaxParameters);
}

void validate(const TrainingConfig& training) {
    const double rows = static_cast<double>(training.seq_len) * static_cast<double>(training.micro_batch_size);
    check(rows <= 0x1p31 - 1, "training.seq_len ", training.seq_len, " x training.micro_batch_size ",
          training.micro_batch_size, ": more than 2^31 - 1 tokens in a micro-batch");
    check(static_cast<double>(training.lm_head_chunks) <= rows, "training.lm_head_chunks ", training.lm_head_chunks,
          " is more than the tokens of a micro-batch, training.seq_len x training.micro_batch_size = ", rows);
    const double micro_batches =
        static_cast<double>(training.grad_accumulation_steps) * static_cast<double>(training.steps);
    check(rows * micro_batches < 0x1p62,
          "training.steps x grad_accumulation_steps x micro_batch_size x seq_len: 2^62 tokens or more");
}

void validate(const PrecisionConfig& precision, const ModelConfig& model, const TrainingConfig& training) {
    if (!precision.has_fp8) return;
    constexpr const char* kBf16 = "; make it one, or take --precision bf16";
    const auto check_multiple = [&](const std::string& name, std::int64_t value) {
        check(value % kF8Multiple == 0, name, " is ", value, ", and GEMMs of FP8 operands take multiples of ",
              kF8Multiple, kBf16);
    };
    check(model.mlp == MlpKind::swiglu,
          "model.mlp \"swiglu\" is the only MLP with GEMMs of FP8 operands; take --precision bf16 with "
          "GELU");
    check(!model.attention_out_bias,
          "model.attention_out_bias is true, and GEMMs of FP8 operands add no bias to the residual; take "
          "--precision bf16");
    check_multiple("model.hidden_size", model.hidden_size);
    check_multiple("model.intermediate_size", model.intermediate_size);
    check_multiple("model.num_attention_heads x model.head_dim", model.num_attention_heads * model.head_dim);
    check_multiple("(model.num_attention_heads + 2 model.num_key_value_heads) x model.head_dim",
                   (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim);
    check_multiple("training.seq_len x training.micro_batch_size", training.seq_len * training.micro_batch_size);
    check(training.recompute != Recompute::mlp,
          "training.recompute \"mlp\" does not go with layers in FP8; take \"swiglu\" or \"none\"");
    check(precision.bf16_first_layers + precision.bf16_last_layers < model.num_hidden_layers,
          "precision.bf16_first_layers ", precision.bf16_first_layers, " + bf16_last_layers ",
          precision.bf16_last_layers, " leave none of the ", model.num_hidden_layers,
          " layers in FP8; make them fewer, or take --precision bf16");
}

void validate(const Config& config) {
    validate(config.model);
    validate(config.training);
    check(!config.data.train.empty(), "data.train: the list is empty");
    check(config.training.seq_len <= config.model.max_position_embeddings, "training.seq_len ", config.training.seq_len,
          " is more than model.max_position_embeddings ", config.model.max_position_embeddings);
}

Config parse(const nlohmann::json& json, const std::string& name) {
    Config config = read_present_keys(json);
    check_required(json);
    derive(config, name);
    validate(config);
    return config;
}

}  // namespace

std::string default_directory(const std::string& name) { return "runs/" + name; }

Config parse_config(const nlohmann::json& json, const std::string& name) {
    Config config = parse(json, name);
    validate(config.precision, config.model, config.training);
    return config;
}

Config parse_recorded_config(const nlohmann::json& json, const std::string& name) {
    return parse(without_retired_keys(json), name);
}

nlohmann::json to_json(const Config& config) {
    nlohmann::json document = nlohmann::json::object();
    for (const Key& key : schema()) key.put(document, key.write(config));
    return document;
}

}  // namespace coda
