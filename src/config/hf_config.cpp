// Between the model section and Hugging Face's config.json.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/config/config.h"
#include "src/config/schema.h"
#include "src/core/errors.h"

namespace coda {

namespace {

/// A config.json being read; errors name the file.
class HfConfig {
  public:
    HfConfig(const nlohmann::json& hf, const std::string& file) : hf_(hf), file_(file) {
        require(hf.is_object(), file, ": expected an object, found ", found_text(hf));
    }

    /// The value of `key`; null when it is absent.
    const nlohmann::json& get(const char* key) const {
        static const nlohmann::json absent;
        const auto found = hf_.find(key);
        return found == hf_.end() ? absent : *found;
    }

    const nlohmann::json& required(const char* key) const {
        require(hf_.contains(key), file_, ": missing key ", key);
        return get(key);
    }

    nlohmann::json or_default(const char* key, const nlohmann::json& fallback) const {
        return get(key).is_null() ? fallback : get(key);
    }

    /// Refuses a model that needs what this program lacks.
    void must_be(const char* key, const nlohmann::json& supported, bool may_be_absent = true) const {
        if (get(key).is_null() && may_be_absent) return;
        require(get(key) == supported, file_, ": ", key, " is ", found_text(get(key)), "; only ", supported.dump(),
                " is supported");
    }

    const std::string& file() const { return file_; }

  private:
    const nlohmann::json& hf_;
    const std::string& file_;
};

struct Rope {
    nlohmann::json theta;    // null: not given here
    nlohmann::json scaling;  // as in the model section
    bool operator==(const Rope&) const = default;
};

/// Rotary parameters of an object "rope_scaling" (transformers 4: rope_theta stands next to it) or "rope_parameters"
/// (transformers 5: rope_theta within). Older files call rope_type "type".
Rope rope_of(const HfConfig& hf, const char* key) {
    nlohmann::json object = hf.get(key);
    if (object.is_null()) return {};
    require(object.is_object(), hf.file(), ": ", key, ": expected an object or null, found ", found_text(object));
    Rope rope;
    if (object.contains("rope_theta")) rope.theta = object["rope_theta"];
    object.erase("rope_theta");
    require(object.value("partial_rotary_factor", nlohmann::json(1)) == 1, hf.file(), ": ", key,
            ".partial_rotary_factor: only 1 is supported");
    object.erase("partial_rotary_factor");
    if (!object.contains("rope_type")) object["rope_type"] = object.value("type", nlohmann::json("default"));
    object.erase("type");
    const nlohmann::json type = object["rope_type"];
    require(type == "default" || type == "llama3", hf.file(), ": ", key, ".rope_type is ", found_text(type),
            "; only \"default\" and \"llama3\" are supported");
    if (type == "llama3") rope.scaling = object;
    return rope;
}

void put_rope(const HfConfig& hf, nlohmann::json& section) {
    constexpr double kHfRopeTheta = 10000;
    Rope rope = rope_of(hf, "rope_parameters");
    if (!hf.get("rope_scaling").is_null()) {
        const Rope scaling = rope_of(hf, "rope_scaling");
        require(hf.get("rope_parameters").is_null() || rope.scaling == scaling.scaling, hf.file(),
                ": rope_scaling and rope_parameters disagree; remove one of them");
        rope.scaling = scaling.scaling;
        if (rope.theta.is_null()) rope.theta = scaling.theta;
    }
    const nlohmann::json& beside = hf.get("rope_theta");
    require(rope.theta.is_null() || beside.is_null() || rope.theta == beside, hf.file(), ": rope_theta ",
            found_text(beside), " and the one in rope_parameters, ", found_text(rope.theta),
            ", disagree; remove one of them");
    if (rope.theta.is_null()) rope.theta = hf.or_default("rope_theta", kHfRopeTheta);
    section["rope_theta"] = rope.theta;
    section["rope_scaling"] = rope.scaling;
}

// Instruct models list several end tokens; the first of them ends a document.
nlohmann::json first_token(const nlohmann::json& tokens) {
    return tokens.is_array() && !tokens.empty() ? tokens.front() : tokens;
}

void refuse_unsupported(const HfConfig& hf) {
    hf.must_be("model_type", "llama", false);
    hf.must_be("hidden_act", "silu");
    hf.must_be("attention_bias", false);
    hf.must_be("mlp_bias", false);
    hf.must_be("attention_dropout", 0.0);
    hf.must_be("partial_rotary_factor", 1.0);
    hf.must_be("quantization_config", nullptr);
    const nlohmann::json& architectures = hf.get("architectures");
    require(architectures.is_null() || architectures == nlohmann::json::array({"LlamaForCausalLM"}), hf.file(),
            ": architectures: only [\"LlamaForCausalLM\"] is supported");
}

}  // namespace

nlohmann::json to_hf_json(const ModelConfig& model) {
    Config config;
    config.model = model;
    nlohmann::json hf = to_json(config)["model"];
    hf["architectures"] = {"LlamaForCausalLM"};
    hf["model_type"] = "llama";
    hf["torch_dtype"] = "float32";
    hf["hidden_act"] = "silu";
    hf["attention_bias"] = false;
    hf["attention_dropout"] = 0.0;
    hf["mlp_bias"] = false;
    hf["pretraining_tp"] = 1;
    hf["use_cache"] = true;
    return hf;
}

std::vector<std::string> hf_refusals(const ModelConfig& model) {
    std::vector<std::string> refusals;
    if (model.hidden_size % model.num_attention_heads != 0) {
        refusals.push_back(text("model.hidden_size ", model.hidden_size,
                                " is not a multiple of model.num_attention_heads ", model.num_attention_heads,
                                ", as transformers wants it"));
    }
    if (model.initializer_range > 1) {
        refusals.push_back(
            text("model.initializer_range ", model.initializer_range, " is more than 1, the most for transformers"));
    }
    for (std::string& refusal : refusals) refusal += ": it does not load an export of this model";
    return refusals;
}

nlohmann::json model_section_from_hf(const nlohmann::json& json, const std::string& file) {
    const HfConfig hf(json, file);
    refuse_unsupported(hf);

    // The defaults of transformers' LlamaConfig, not ours: a file that omits a key means them.
    nlohmann::json section;
    for (const char* key :
         {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
        section[key] = hf.required(key);
    }
    section["num_key_value_heads"] = hf.or_default("num_key_value_heads", section["num_attention_heads"]);
    if (!hf.get("head_dim").is_null()) section["head_dim"] = hf.get("head_dim");
    section["rms_norm_eps"] = hf.or_default("rms_norm_eps", 1e-6);
    section["tie_word_embeddings"] = hf.or_default("tie_word_embeddings", false);
    section["max_position_embeddings"] = hf.or_default("max_position_embeddings", 2048);
    put_rope(hf, section);

    // These say nothing about the trained function, so a file without them leaves the choice to the run's config.
    if (json.contains("initializer_range")) section["initializer_range"] = hf.get("initializer_range");
    if (json.contains("bos_token_id")) section["bos_token_id"] = hf.get("bos_token_id");
    if (json.contains("eos_token_id")) section["eos_token_id"] = first_token(hf.get("eos_token_id"));

    Config config;
    for (const Key& key : schema()) {
        if (key.section != "model" || !section.contains(key.name)) continue;
        try {
            key.read(section[key.name], text(file, ": ", key.name), config);
        } catch (const UsageError& error) {
            throw Error(error.what());
        }
    }
    const ModelConfig& model = config.model;
    if (model.head_dim == 0) {
        require(model.hidden_size % model.num_attention_heads == 0, file, ": hidden_size ", model.hidden_size,
                " is not divisible by num_attention_heads ", model.num_attention_heads, ", and there is no head_dim");
        section["head_dim"] = model.hidden_size / model.num_attention_heads;
    }
    return section;
}

}  // namespace coda
