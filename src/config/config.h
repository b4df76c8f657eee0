// The configuration of a run: one JSON file. Every key is also a flag, and flags override the file.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace coda {

/// The MLP: swiglu is (silu(gate) * up) down; the others have no gate, gelu(up) down, with GELU's tanh form or the
/// exact one (kernels/math/gelu.h).
enum class MlpKind { swiglu, gelu_tanh, gelu_exact };

/// How attention knows positions: rope turns q and k; learned adds a row of a table to each token's embedding instead.
enum class PositionEmbeddings { rope, learned };

/// The norms before attention, the MLP and the head. A LayerNorm subtracts a row's mean, and has a bias next to its
/// weight.
enum class NormKind { rmsnorm, layernorm };

enum class RopeType { llama3, linear, yarn };

/// Rescaling of the rotary frequencies. Linear: every frequency is divided by `factor`, as if positions lay closer. Of
/// LLaMA 3.1 and later ("llama3"): wavelengths below original_max_position_embeddings / high_freq_factor keep their
/// frequency, those above original_max_position_embeddings / low_freq_factor are slowed by `factor`, and those between
/// are blended. Yarn (arXiv 2309.00071): pairs that turn at least beta_fast times within
/// original_max_position_embeddings keep their frequency, those that turn at most beta_slow times are slowed by
/// `factor`, those between are blended by the pair's number; q and k are multiplied by the attention factor.
struct RopeScaling {
    double factor = 8;
    double low_freq_factor = 1;                            // of llama3
    double high_freq_factor = 4;                           // of llama3
    std::int64_t original_max_position_embeddings = 8192;  // of llama3 and yarn
    RopeType type = RopeType::llama3;
    // Of yarn.
    double beta_fast = 32, beta_slow = 1;
    bool truncate = true;                              // the pairs of beta_fast and beta_slow are whole numbers
    std::optional<double> attention_factor{};          // absent: from the two below, or from `factor`
    std::optional<double> mscale{}, mscale_all_dim{};  // as DeepSeek has them: their factors' ratio
};

/// Names as in Hugging Face's config.json.
struct ModelConfig {
    std::int64_t hidden_size = 0;
    std::int64_t intermediate_size = 0;
    std::int64_t num_hidden_layers = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_key_value_heads = 0;  // default: num_attention_heads
    std::int64_t head_dim = 0;             // default: hidden_size / num_attention_heads
    std::int64_t vocab_size = 0;
    NormKind norm = NormKind::rmsnorm;
    double rms_norm_eps = 1e-5;  // of a LayerNorm too
    double rope_theta = 500000;
    std::optional<RopeScaling> rope_scaling;
    PositionEmbeddings position_embeddings = PositionEmbeddings::rope;
    bool tie_word_embeddings = false;
    bool attention_bias = false;      // of the q, k and v projections
    bool attention_out_bias = false;  // of attention's output projection
    bool qk_norm = false;             // every q and k head has an RMSNorm before RoPE
    std::int64_t sliding_window = 0;  // keys that a token sees, its own included; 0: all before it
    MlpKind mlp = MlpKind::swiglu;
    bool mlp_bias = false;                     // of its two projections; not of SwiGLU's
    std::int64_t max_position_embeddings = 0;  // default: training.seq_len
    double initializer_range = 0.02;
    std::optional<std::int64_t> bos_token_id;
    std::vector<std::int64_t> eos_token_id;  // each ends a text; empty: none
};

struct DataConfig {
    // Paths or globs, relative to the current folder like all relative paths; a .txt file is read as bytes.
    std::vector<std::string> train;
    std::vector<std::string> val;  // empty: the last 10% of train
    bool shuffle = true;
    bool document_mask = false;              // keep packed documents apart: masks say where they begin, else bos
    std::optional<std::string> tokenizer{};  // path of the Hugging Face tokenizer.json that made the tokens
};

/// What the backward pass recomputes. none: nothing. swiglu: silu(gate) * up, a (tokens, intermediate_size) matrix per
/// layer; with FP8 operands, transposed copies of inputs. mlp: gate and up too, by their GEMM.
enum class Recompute { none, swiglu, mlp };

struct TrainingConfig {
    std::int64_t seq_len = 0;
    std::int64_t micro_batch_size = 0;
    std::int64_t grad_accumulation_steps = 1;
    std::int64_t steps = 0;
    std::uint64_t seed = 1337;
    double max_grad_norm = 1.0;  // 0: off
    double skip_spikes = 0;      // z of the gradient norm beyond which an update is dropped; 0: off
    std::int64_t lm_head_chunks = 1;
    Recompute recompute = Recompute::none;
};

enum class Moments { fp32, bf16 };

struct OptimizerConfig {
    double learning_rate = 3e-4;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;
    Moments moments = Moments::fp32;
};

enum class LrScheduleType { cosine, linear, constant, wsd };

struct LrScheduleConfig {
    LrScheduleType type = LrScheduleType::cosine;
    std::int64_t warmup_steps = 0;
    double min_lr_ratio = 0.1;
    std::optional<std::int64_t> decay_steps;  // wsd: steps of the final decay, default 20% of steps; cosine, linear:
                                              // steps from the end of warm-up to the minimum, default all that remain
};

struct ValidationConfig {
    std::int64_t interval = 0;  // steps; 0: only at the end
    std::int64_t batches = 20;
};

struct EvaluationConfig {
    std::vector<std::string> files;  // multiple-choice shards: paths or globs; empty: off
    std::int64_t interval = 0;       // steps; 0: only at the end
    std::int64_t limit = 0;          // examples per file; 0: all
};

/// Samples of the model during training.
struct SamplesConfig {
    std::int64_t interval = 0;         // steps; 0: none
    std::vector<std::string> prompts;  // texts, each of which a sample follows; empty: the beginning of a document
    std::int64_t tokens = 128;         // of each sample, at most
    // kernels/math/sampling.h
    double temperature = 1;
    std::int64_t top_k = 0;
    double top_p = 1;
    double min_p = 0;
    double repetition_penalty = 1;
    std::uint64_t seed = 1337;
};

struct CheckpointConfig {
    std::int64_t interval = 0;  // steps; 0: none but at_end
    std::int64_t keep = 3;
    bool at_end = true;
    bool background = true;  // written while the run continues, from a copy in host memory
};

struct OutputConfig {
    std::string directory;  // default: runs/NAME, NAME the config file's stem
};

enum class DeviceChoice { automatic, cuda, cpu };

/// Whether the GEMMs of the layers take FP8 operands in a training step, in forward, dgrad and wgrad, and in which
/// layers. Otherwise their operands have the storage type: bf16, or fp32 on a CPU where no layer takes FP8.
struct PrecisionConfig {
    bool has_fp8 = false;
    std::int64_t bf16_first_layers = 0;
    std::int64_t bf16_last_layers = 0;
    std::int64_t count_interval = 100;  // steps from one count of clipped elements and zeros to the next; 0: never

    static PrecisionConfig fp8() { return {.has_fp8 = true}; }
    bool operator==(const PrecisionConfig&) const = default;
};

struct Config {
    ModelConfig model;
    DataConfig data;
    TrainingConfig training;
    OptimizerConfig optimizer;
    LrScheduleConfig lr_schedule;
    ValidationConfig validation;
    EvaluationConfig evaluation;
    SamplesConfig samples;
    CheckpointConfig checkpoint;
    OutputConfig output;
    DeviceChoice device = DeviceChoice::automatic;
    PrecisionConfig precision;
};

/// Parses and validates a complete configuration. `name` (a file's stem) fills output.directory's default. Throws
/// UsageError naming the key for unknown keys (with the nearest known one), missing keys, wrong types, values out of
/// range, heads not divisible by KV heads, odd head_dim, and the like.
/// A retired key (src/config/retired.h) is read where it has its fixed value, and refused with the reason otherwise.
Config parse_config(const nlohmann::json& json, const std::string& name);

/// output.directory of a configuration of this name that gives none.
std::string default_directory(const std::string& name);

/// The configuration of a run as its checkpoint holds it. Retired keys may have any value, and what FP8 operands go
/// with is not checked: the run has taken its steps.
Config parse_recorded_config(const nlohmann::json& json, const std::string& name);

/// The resolved configuration: every key, defaults included. parse_config(to_json(c), name) returns c again.
nlohmann::json to_json(const Config& config);

/// The Hugging Face config.json of the model section: "model_type" is "llama", "mistral" of a model with a sliding
/// window, "qwen2" of a model with biases of q, k and v only, "qwen3" of one with norms of q and k, or "gpt2" of one
/// with LayerNorm. Throws Error naming the key where transformers has no such model.
nlohmann::json to_hf_json(const ModelConfig& model);

/// Why transformers refuses that config.json, a sentence each that names the key: it has bounds that this program does
/// not have. Empty where it takes the model.
std::vector<std::string> hf_refusals(const ModelConfig& model);

/// The model section from a Hugging Face config.json. Throws Error naming `file` when it is not a LLaMA that this
/// program can run, or a Mistral, Qwen2, Qwen3 or GPT-2: another model_type (of known ones with what they have that
/// these have not), a sliding window in some of the layers, another activation function, an mlp_bias true, quantized
/// weights, an unknown rope type, ...
nlohmann::json model_section_from_hf(const nlohmann::json& hf, const std::string& file);

/// The model section of a Hugging Face folder: from its config.json, with the end tokens of generation_config.json
/// where that has some. Throws Error also where the folder has only an adapter.
nlohmann::json model_section_from_hf_folder(const std::string& folder);

}  // namespace coda
