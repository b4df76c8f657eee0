#include "src/config/schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/core/error.h"
#include "src/config/retired.h"
#include "src/config/rope_codec.h"
#include "src/core/printable.h"

namespace coda {

namespace {

// What a missing value means: an error, Config's own default, or a value that depends on other settings.
struct Default {
    bool required = false;
    std::string derived{};  // how --help describes a value that parse_config or its reader derives
};

const Default kRequired{.required = true};
const Default kOwn{};
Default derived(std::string description) { return {.derived = std::move(description)}; }

Range at_least(double min) { return {.min = min}; }
Range above(double min) { return {.min = min, .min_excluded = true}; }
Range between(double min, double max) { return {.min = min, .max = max}; }

// Upper bounds keep multiplied sizes within 64 bits; validate() in config.cpp bounds the results.
constexpr double kMaxWidth = 1 << 20;
constexpr double kMaxInt32 = 2147483647;
const Range kCount = between(0, kMaxInt32);
const Range kPositiveCount = between(1, kMaxInt32);
const Range kEpsilon = at_least(1.2e-38);  // kernels take it in fp32, where smaller numbers are subnormal or 0

/// Adds the keys of one section; `Section Config::*` says where its members are.
template <class Section>
class SectionKeys {
  public:
    SectionKeys(std::vector<Key>& keys, std::string name, Section Config::*section)
        : keys_(keys), name_(std::move(name)), section_(section) {}

    template <class T>
    SectionKeys& add(const char* name, T Section::*member, const Default& fallback, const Range& range,
                     const char* help) {
        const auto access = [ section = section_, member ](auto& config) -> auto& { return config.*section.*member; };
        append<T>(keys_, name_, name, access, fallback, range, help);
        return *this;
    }

    template <class T, class Access>
    static void append(std::vector<Key>& keys, const std::string& section, const char* name, Access access,
                       const Default& fallback, const Range& range, const char* help) {
        Key key;
        key.section = section;
        key.name = name;
        key.value_word = Codec<T>::value_word();
        key.help = help;
        key.required = fallback.required;
        key.null_is_absent = !fallback.derived.empty();
        key.syntax = Codec<T>::syntax;
        key.read = [access, range, null_is_absent = key.null_is_absent](const nlohmann::json& value,
                                                                        const std::string& where, Config& config) {
            if (value.is_null() && null_is_absent) return;
            read_value(value, where, range, access(config));
        };
        key.write = [access](const Config& config) { return Codec<T>::write(access(config)); };
        if (!fallback.derived.empty()) {
            key.default_text = fallback.derived;
        } else if (!fallback.required) {
            const nlohmann::json value = key.write(Config{});
            key.default_text = value.is_string() ? value.get<std::string>() : value.dump();
        }
        keys.push_back(std::move(key));
    }

  private:
    std::vector<Key>& keys_;
    std::string name_;
    Section Config::*section_;
};

void add_model(std::vector<Key>& keys) {
    using C = ModelConfig;
    SectionKeys(keys, "model", &Config::model)
        .add("hidden_size", &C::hidden_size, kRequired, between(1, kMaxWidth), "Width of the residual stream")
        .add("intermediate_size", &C::intermediate_size, kRequired, between(1, kMaxWidth), "Width of the MLP")
        .add("num_hidden_layers", &C::num_hidden_layers, kRequired, between(1, 65536), "Transformer blocks")
        .add("num_attention_heads", &C::num_attention_heads, kRequired, between(1, 65536), "Query heads")
        .add("num_key_value_heads", &C::num_key_value_heads, derived("num_attention_heads"), between(1, 65536),
             "Key and value heads (GQA); divides the query heads")
        .add("head_dim", &C::head_dim, derived("hidden_size / num_attention_heads"), between(2, 65536),
             "Width of a head; even")
        .add("vocab_size", &C::vocab_size, kRequired, between(1, 1 << 24), "Tokens of the vocabulary; 256 for bytes")
        .add("norm", &C::norm, kOwn, {}, "The norm before attention, MLP and head: RMSNorm, or LayerNorm with a bias")
        .add("rms_norm_eps", &C::rms_norm_eps, kOwn, kEpsilon, "Added to the mean square in the norm")
        .add("rope_theta", &C::rope_theta, kOwn, above(0), "Base of the rotary frequencies")
        .add("rope_scaling", &C::rope_scaling, kOwn, {},
             "Hugging Face's object of rope_type linear (factor), llama3 (factor, low_freq_factor, high_freq_factor, "
             "original_max_position_embeddings) or yarn (factor, original_max_position_embeddings and what may be "
             "absent)")
        .add("position_embeddings", &C::position_embeddings, kOwn, {},
             "RoPE, or a learned row per position, of which there are max_position_embeddings")
        .add("tie_word_embeddings", &C::tie_word_embeddings, kOwn, {}, "Use the embedding as LM head")
        .add("attention_bias", &C::attention_bias, kOwn, {}, "Biases of the q, k and v projections, as in Qwen2")
        .add("qk_norm", &C::qk_norm, kOwn, {}, "An RMSNorm of every q and k head before RoPE, as in Qwen3")
        .add("sliding_window", &C::sliding_window, kOwn, kCount,
             "Keys that a token sees, its own included, as in Mistral 7B v0.1; 0: all")
        .add("attention_out_bias", &C::attention_out_bias, kOwn, {},
             "A bias of attention's output projection; with attention_bias as LLaMA's attention_bias of transformers")
        .add("mlp", &C::mlp, kOwn, {}, "The MLP: SwiGLU with gate and up, or one projection and GELU, tanh's or exact")
        .add("mlp_bias", &C::mlp_bias, kOwn, {}, "Biases of the MLP's two projections; only with GELU")
        .add("max_position_embeddings", &C::max_position_embeddings, derived("training.seq_len"), kPositiveCount,
             "Longest sequence the model is meant for")
        .add("initializer_range", &C::initializer_range, kOwn, above(0), "Standard deviation of initial matrices")
        .add("bos_token_id", &C::bos_token_id, kOwn, kCount, "Token that begins a document")
        .add("eos_token_id", &C::eos_token_id, kOwn, kCount, "Token that ends a text, or a list of them");
}

void add_data(std::vector<Key>& keys) {
    using C = DataConfig;
    SectionKeys(keys, "data", &Config::data)
        .add("train", &C::train, kRequired, {},
             "Token shards (.bin) or text (.txt, read as bytes): paths or globs, relative ones from the current folder")
        .add("val", &C::val, derived("the last 10% of train"), {}, "The same for validation")
        .add("shuffle", &C::shuffle, kOwn, {}, "Visit the sequences of an epoch in random order")
        .add("document_mask", &C::document_mask, kOwn, {},
             "Keep packed documents apart in attention and positions; needs model.bos_token_id")
        .add("tokenizer", &C::tokenizer, kOwn, {},
             "The Hugging Face tokenizer.json of the tokens and samples; the run keeps a copy");
}

void add_training(std::vector<Key>& keys) {
    using C = TrainingConfig;
    SectionKeys(keys, "training", &Config::training)
        .add("seq_len", &C::seq_len, kRequired, kPositiveCount, "Tokens of a sequence")
        .add("micro_batch_size", &C::micro_batch_size, kRequired, kPositiveCount, "Sequences of a micro-batch")
        .add("grad_accumulation_steps", &C::grad_accumulation_steps, kOwn, kPositiveCount, "Micro-batches of a step")
        .add("steps", &C::steps, kRequired, kCount, "Optimizer steps")
        .add("seed", &C::seed, kOwn, at_least(0), "Seed of initialisation, data order and stochastic rounding")
        .add("max_grad_norm", &C::max_grad_norm, kOwn, at_least(0), "Clip the gradient's global norm to this; 0: off")
        .add("skip_spikes", &C::skip_spikes, kOwn, at_least(0),
             "Drop the update of a step whose gradient norm lies this many standard deviations above the usual; 0: off")
        .add("lm_head_chunks", &C::lm_head_chunks, kOwn, kPositiveCount,
             "Parts in which LM head and loss are computed; more take less memory for logits")
        .add("recompute", &C::recompute, kOwn, {},
             "What of the MLP the backward pass recomputes: nothing, the SwiGLU output, or gate and up too");
}

void add_optimizer(std::vector<Key>& keys) {
    using C = OptimizerConfig;
    const Range beta{.min = 0, .max = 1, .max_excluded = true};
    SectionKeys(keys, "optimizer", &Config::optimizer)
        .add("learning_rate", &C::learning_rate, kOwn, above(0), "Peak learning rate of AdamW")
        .add("beta1", &C::beta1, kOwn, beta, "Decay of the first moment")
        .add("beta2", &C::beta2, kOwn, beta, "Decay of the second moment")
        .add("eps", &C::eps, kOwn, kEpsilon, "Added to the root of the second moment")
        .add("weight_decay", &C::weight_decay, kOwn, at_least(0), "Decoupled decay, on matrices only")
        .add("moments", &C::moments, kOwn, {}, "Storage of the moments; bf16 rounds stochastically");
}

void add_lr_schedule(std::vector<Key>& keys) {
    using C = LrScheduleConfig;
    SectionKeys(keys, "lr_schedule", &Config::lr_schedule)
        .add("type", &C::type, kOwn, {}, "Shape of the learning rate after warm-up; wsd: warm-up, stable, decay")
        .add("warmup_steps", &C::warmup_steps, kOwn, kCount, "Steps of linear warm-up")
        .add("min_lr_ratio", &C::min_lr_ratio, kOwn, between(0, 1), "Last learning rate as a fraction of the peak")
        .add("decay_steps", &C::decay_steps, derived("wsd: 20% of the steps; cosine, linear: all after warm-up"),
             kPositiveCount, "Steps of the decay");
}

void add_run_keys(std::vector<Key>& keys) {
    SectionKeys(keys, "validation", &Config::validation)
        .add("interval", &ValidationConfig::interval, kOwn, kCount, "Steps between validations; 0: at the end only")
        .add("batches", &ValidationConfig::batches, kOwn, kPositiveCount, "Micro-batches of a validation");
    SectionKeys(keys, "evaluation", &Config::evaluation)
        .add("files", &EvaluationConfig::files, kOwn, {},
             "Multiple-choice evaluation shards of llm.c: paths or globs; empty: off")
        .add("interval", &EvaluationConfig::interval, kOwn, kCount, "Steps between evaluations; 0: at the end only")
        .add("limit", &EvaluationConfig::limit, kOwn, kCount, "Examples of each file; 0: all");
    SectionKeys(keys, "samples", &Config::samples)
        .add("interval", &SamplesConfig::interval, kOwn, kCount, "Steps between samples of the model; 0: none")
        .add("prompts", &SamplesConfig::prompts, kOwn, {},
             "Texts, each of which a sample follows; empty: one sample from the beginning of a document")
        .add("tokens", &SamplesConfig::tokens, kOwn, between(1, 1 << 20), "Tokens of a sample, at most")
        .add("temperature", &SamplesConfig::temperature, kOwn, between(0, 1e6),
             "Divides the logits; 0: the likeliest token")
        .add("top_k", &SamplesConfig::top_k, kOwn, between(0, 1 << 24), "Choose among this many tokens; 0: all")
        .add("top_p", &SamplesConfig::top_p, kOwn, between(0, 1),
             "Choose among the likeliest tokens that have this probability together; 1: all")
        .add("min_p", &SamplesConfig::min_p, kOwn, between(0, 1),
             "Choose among tokens of at least this part of the likeliest one's probability; 0: all")
        .add("repetition_penalty", &SamplesConfig::repetition_penalty, kOwn, Range{.min = 1e-6, .max = 1e6},
             "Makes tokens that the text has already less likely; 1: off")
        .add("seed", &SamplesConfig::seed, kOwn, at_least(0), "Seed of the samples");
    SectionKeys(keys, "checkpoint", &Config::checkpoint)
        .add("interval", &CheckpointConfig::interval, kOwn, kCount, "Steps between checkpoints; 0: none before the end")
        .add("keep", &CheckpointConfig::keep, kOwn, kPositiveCount, "Newest checkpoints kept")
        .add("at_end", &CheckpointConfig::at_end, kOwn, {}, "Write a checkpoint after the last step")
        .add("background", &CheckpointConfig::background, kOwn, {},
             "Write checkpoints while the run continues, from a copy in host memory; false: it waits for each");
    SectionKeys(keys, "output", &Config::output)
        .add("directory", &OutputConfig::directory, derived("runs/NAME of the config file"), {},
             "Folder of the run log and the checkpoints");
    using TopLevel = SectionKeys<Config>;
    TopLevel::append<DeviceChoice>(
        keys, "", "device", [](auto& config) -> auto& { return config.device; }, kOwn, {},
        "auto: the GPU if there is a Hopper one, else the CPU");
    TopLevel::append<PrecisionConfig>(
        keys, "", "precision", [](auto& config) -> auto& { return config.precision; }, kOwn, {},
        "What the GEMMs of the layers multiply in training: bf16 (fp32 on a CPU), fp8, or an object of what differs "
        "from fp8: {\"bf16_first_layers\", \"bf16_last_layers\", \"count_interval\"}");
}

std::vector<Key> build_schema() {
    std::vector<Key> keys;
    add_model(keys);
    add_data(keys);
    add_training(keys);
    add_optimizer(keys);
    add_lr_schedule(keys);
    add_run_keys(keys);
    return keys;
}

[[noreturn]] void refuse_unknown(const std::string& path) {
    std::vector<std::string> known;
    for (const Key& key : schema()) known.push_back(key.path());
    throw UsageError(text("unknown key ", printable(path, ""), "; the nearest known key is ", nearest(path, known)));
}

[[noreturn]] void refuse_unknown_section(const std::string& name) {
    std::vector<std::string> known;
    for (const Key& key : schema()) {
        const std::string& top = key.section.empty() ? key.name : key.section;
        if (known.empty() || known.back() != top) known.push_back(top);
    }
    throw UsageError(
        text("unknown section ", printable(name, ""), "; the nearest known one is ", nearest(name, known)));
}

const Key* find_key(const std::string& section, const std::string& name) {
    const auto found = std::find_if(schema().begin(), schema().end(),
                                    [&](const Key& key) { return key.section == section && key.name == name; });
    return found == schema().end() ? nullptr : &*found;
}

}  // namespace

const nlohmann::json* Key::find(const nlohmann::json& document) const {
    const nlohmann::json* parent = &document;
    if (!section.empty()) {
        const auto at = document.find(section);
        if (at == document.end()) return nullptr;
        parent = &*at;
    }
    const auto at = parent->find(name);
    return at == parent->end() ? nullptr : &*at;
}

void Key::put(nlohmann::json& document, nlohmann::json value) const {
    (section.empty() ? document : document[section])[name] = std::move(value);
}

const std::vector<Key>& schema() {
    static const std::vector<Key> keys = build_schema();
    return keys;
}

const Key& key_of(const std::string& section, const std::string& name) {
    const Key* key = find_key(section, name);
    require(key != nullptr, "the configuration has no key ", section, ".", name);
    return *key;
}

Config read_present_keys(const nlohmann::json& document) {
    if (!document.is_object()) {
        throw UsageError(text("expected an object with the sections of a config, found ", found_text(document)));
    }
    Config config;
    for (const auto& [top, value] : document.items()) {
        if (const Key* key = find_key("", top)) {
            key->read(value, key->path(), config);
            continue;
        }
        if (const RetiredKey* key = retired_key(top)) {
            require_fixed(*key, value, top);
            continue;
        }
        const bool is_section = std::any_of(schema().begin(), schema().end(),
                                            [&, name = top](const Key& key) { return key.section == name; });
        if (!is_section && value.is_object()) refuse_unknown_section(top);
        if (!is_section) refuse_unknown(top);
        if (!value.is_object()) throw UsageError(text(top, ": expected an object, found ", found_text(value)));
        for (const auto& [name, member] : value.items()) {
            const Key* key = find_key(top, name);
            if (key == nullptr) refuse_unknown(top + "." + name);
            key->read(member, key->path(), config);
        }
    }
    return config;
}

}  // namespace coda
