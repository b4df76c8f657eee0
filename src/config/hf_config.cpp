// Between the model section and Hugging Face's config.json.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "src/config/codec.h"
#include "src/config/config.h"
#include "src/config/json_file.h"
#include "src/config/quantization.h"
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

    bool has(const char* key) const { return hf_.contains(key); }

    const nlohmann::json& required(const char* key) const {
        require(has(key), file_, ": missing key ", key);
        return get(key);
    }

    nlohmann::json or_default(const char* key, const nlohmann::json& fallback) const {
        return get(key).is_null() ? fallback : get(key);
    }

    /// Refuses a model that needs what this program lacks.
    void must_be(const char* key, const nlohmann::json& supported) const {
        if (get(key).is_null()) return;
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
    require(type == "default" || type == "llama3" || type == "linear", hf.file(), ": ", key, ".rope_type is ",
            found_text(type), "; only \"default\", \"linear\" and \"llama3\" are supported");
    if (type == "linear") object = {{"rope_type", type}, {"factor", object.value("factor", nlohmann::json())}};
    if (type != "default") rope.scaling = object;
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

/// A model_type whose function is LLaMA's, but for biases of q, k and v, norms of q and k, and windows, and
/// transformers' defaults where its file omits a key.
struct Family {
    const char *model_type, *architecture;
    std::int64_t max_position_embeddings;
    std::optional<std::int64_t> num_key_value_heads{};  // absent: as many as query heads
    std::optional<std::int64_t> sliding_window{};       // absent: it has no such key
    std::optional<std::int64_t> head_dim{};             // absent: hidden_size / num_attention_heads
    bool window_by_layers = false;                      // its file says which layers have windows
    bool attention_bias = false;                        // it always has biases of q, k and v
    bool attention_bias_key = false;                    // its key attention_bias gives biases to q, k, v and o
    bool qk_norm = false;
};
constexpr Family kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .max_position_embeddings = 2048,
     .attention_bias_key = true},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .max_position_embeddings = 131072,
     .num_key_value_heads = 8,
     .sliding_window = 4096},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .max_position_embeddings = 32768,
     .num_key_value_heads = 32,
     .sliding_window = 4096,
     .window_by_layers = true,
     .attention_bias = true},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .max_position_embeddings = 32768,
     .num_key_value_heads = 32,
     .sliding_window = 4096,
     .head_dim = 128,
     .window_by_layers = true,
     .qk_norm = true},
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
    {"gpt", "LayerNorm and another MLP"},
    {"llama4", "experts and layers without rotary embedding"},
    {"mistral3", "a part for images"},
    {"phi", "LayerNorm and blocks in parallel"},
    {"olmo", "LayerNorm without weights"},
    {"starcoder2", "LayerNorm, biases and another MLP"},
};

const Family& family_of(const HfConfig& hf) {
    const nlohmann::json& type = hf.get("model_type");
    for (const Family& family : kFamilies) {
        if (type == family.model_type) return family;
    }
    std::string why;
    for (const auto& [begin, has] : kOtherModels) {
        if (!type.is_string() || !type.get<std::string>().starts_with(begin)) continue;
        why = text(", which has ", has);
        break;
    }
    throw Error(text(hf.file(), ": ",
                     hf.has("model_type") ? "model_type is " + found_text(type) : "there is no model_type", why,
                     "; only \"llama\", \"mistral\", \"qwen2\" and \"qwen3\" are supported"));
}

/// Leaves out the end tokens that the model has no row for, as it cannot make them. Throws Error naming `file` where
/// none is left, and for such a first token.
void check_marks(nlohmann::json& section, const std::string& file) {
    const nlohmann::json& vocab = section["vocab_size"];
    const auto beyond = [&](const nlohmann::json& token) {
        return token.is_number_integer() && vocab.is_number_integer() && token >= vocab;
    };
    for (const char* key : {"bos_token_id", "eos_token_id"}) {
        const auto token = section.find(key);
        if (token == section.end()) continue;
        nlohmann::json kept = nlohmann::json::array();
        for (const nlohmann::json& each : token->is_array() ? *token : nlohmann::json::array({*token})) {
            if (!beyond(each)) kept.push_back(each);
        }
        require(!kept.empty() || *token == kept, file, ": ", key, " ", token->dump(),
                " is outside of the model's vocab_size ", vocab.dump());
        if (token->is_array()) *token = kept;
    }
}

/// Whether the layers of a qwen2 or qwen3 have windows: those from max_window_layers on, or what layer_types says of
/// each. Throws Error where only some have.
bool windows_in_layers(const HfConfig& hf, const nlohmann::json& layers) {
    if (hf.or_default("use_sliding_window", false) != true) return false;
    const nlohmann::json types = hf.get("layer_types");
    if (types.is_array()) {
        const auto windowed = std::count(types.begin(), types.end(), "sliding_attention");
        require(windowed == 0 || windowed == static_cast<std::ptrdiff_t>(types.size()), hf.file(),
                ": layer_types: windows in some of the layers only are not supported");
        return windowed > 0;
    }
    constexpr std::int64_t kUsual = 28;
    const nlohmann::json first = hf.or_default("max_window_layers", kUsual);
    require(first == 0 || (first.is_number() && layers.is_number() && first >= layers), hf.file(),
            ": max_window_layers is ", found_text(first), " of ", found_text(layers),
            " layers, and use_sliding_window is true; windows in some of the layers only are not supported");
    return first == 0;
}

/// The window of every layer, as in the model section.
nlohmann::json window_of(const HfConfig& hf, const Family& family, const nlohmann::json& layers) {
    const nlohmann::json none = 0;
    if (!family.sliding_window || (family.window_by_layers && !windows_in_layers(hf, layers))) return none;
    const nlohmann::json usual = *family.sliding_window;
    const nlohmann::json& window = hf.has("sliding_window") ? hf.get("sliding_window") : usual;
    return window.is_null() ? none : window;
}

void refuse_unsupported(const HfConfig& hf, const Family& family) {
    hf.must_be("hidden_act", "silu");
    if (!family.attention_bias_key) hf.must_be("attention_bias", family.attention_bias);
    if (!family.window_by_layers) hf.must_be("use_sliding_window", false);
    if (hf.or_default("use_sliding_window", false) != true) {
        for (const nlohmann::json& type : hf.get("layer_types"))
            require(type == "full_attention", hf.file(), ": layer_types has ", found_text(type),
                    ", and use_sliding_window is not true; only \"full_attention\" is supported then");
    }
    hf.must_be("mlp_bias", false);
    hf.must_be("attention_dropout", 0.0);
    hf.must_be("partial_rotary_factor", 1.0);
    check_quantization(hf.get("quantization_config"), hf.file());
    const nlohmann::json& architectures = hf.get("architectures");
    require(architectures.is_null() || architectures == nlohmann::json::array({family.architecture}), hf.file(),
            ": architectures: only [\"", family.architecture, "\"] is supported");
}

}  // namespace

namespace {

/// Why no model_type that this program writes is this model; empty where one is.
std::string alien_to_transformers(const ModelConfig& model) {
    constexpr const char* kNone = ", which no model_type has that this program writes";
    if (model.position_embeddings == PositionEmbeddings::learned)
        return text("model.position_embeddings is \"learned\" in a LLaMA", kNone);
    if (model.mlp != MlpKind::swiglu)
        return text("model.mlp is ", Codec<MlpKind>::write(model.mlp).dump(), " in a LLaMA", kNone);
    if (model.attention_out_bias && !model.attention_bias)
        return text("model.attention_out_bias is true without model.attention_bias", kNone);
    return "";
}

}  // namespace

nlohmann::json to_hf_json(const ModelConfig& model) {
    Config config;
    config.model = model;
    nlohmann::json hf = to_json(config)["model"];
    const std::string alien = alien_to_transformers(model);
    require(alien.empty(), "--export: ", alien);
    const bool window = model.sliding_window > 0;
    const bool all_biases = model.attention_bias && model.attention_out_bias;
    const Family& family = *std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const Family& each) {
        return each.attention_bias == (model.attention_bias && !all_biases) && each.qk_norm == model.qk_norm &&
               (each.attention_bias_key || !all_biases) && (each.sliding_window || !window);
    });
    for (const char* key : {"attention_out_bias", "mlp", "position_embeddings", "qk_norm"})
        hf.erase(key);  // the model_type and its keys say them
    if (!window) hf.erase("sliding_window");
    if (family.window_by_layers) {
        hf["use_sliding_window"] = window;
        hf["max_window_layers"] = window ? 0 : model.num_hidden_layers;
    }
    hf["architectures"] = {family.architecture};
    hf["model_type"] = family.model_type;
    hf["torch_dtype"] = "float32";
    hf["hidden_act"] = "silu";
    hf["attention_dropout"] = 0.0;
    hf["mlp_bias"] = false;
    hf["pretraining_tp"] = 1;
    hf["use_cache"] = true;
    return hf;
}

std::vector<std::string> hf_refusals(const ModelConfig& model) {
    std::vector<std::string> refusals;
    if (const std::string alien = alien_to_transformers(model); !alien.empty()) refusals.push_back(alien);
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
    const Family& family = family_of(hf);
    refuse_unsupported(hf, family);

    // The defaults of transformers, not ours: a file that omits a key means them.
    nlohmann::json section;
    for (const char* key :
         {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
        section[key] = hf.required(key);
    }
    section["num_key_value_heads"] = hf.get("num_key_value_heads");
    if (!hf.has("num_key_value_heads") && family.num_key_value_heads) {
        section["num_key_value_heads"] = *family.num_key_value_heads;
    }
    if (section["num_key_value_heads"].is_null()) section["num_key_value_heads"] = section["num_attention_heads"];
    if (!hf.get("head_dim").is_null())
        section["head_dim"] = hf.get("head_dim");
    else if (family.head_dim)
        section["head_dim"] = *family.head_dim;
    section["rms_norm_eps"] = hf.or_default("rms_norm_eps", 1e-6);
    section["attention_bias"] =
        family.attention_bias_key ? hf.or_default("attention_bias", false) : nlohmann::json(family.attention_bias);
    section["attention_out_bias"] = family.attention_bias_key ? section["attention_bias"] : nlohmann::json(false);
    section["qk_norm"] = family.qk_norm;
    section["position_embeddings"] = Codec<PositionEmbeddings>::write(PositionEmbeddings::rope);
    section["mlp"] = Codec<MlpKind>::write(MlpKind::swiglu);
    section["mlp_bias"] = false;
    section["tie_word_embeddings"] = hf.or_default("tie_word_embeddings", false);
    section["max_position_embeddings"] = hf.or_default("max_position_embeddings", family.max_position_embeddings);
    section["sliding_window"] = window_of(hf, family, section["num_hidden_layers"]);
    put_rope(hf, section);

    // These say nothing about the trained function, so a file without them leaves the choice to the run's config.
    if (json.contains("initializer_range")) section["initializer_range"] = hf.get("initializer_range");
    if (json.contains("bos_token_id")) section["bos_token_id"] = hf.get("bos_token_id");
    if (json.contains("eos_token_id")) section["eos_token_id"] = hf.get("eos_token_id");
    check_marks(section, file);

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

nlohmann::json model_section_from_hf_folder(const std::string& folder) {
    const std::filesystem::path path = folder, config = path / "config.json",
                                generation = path / "generation_config.json";
    std::error_code ignored;
    const auto is_there = [&](const std::filesystem::path& file) { return std::filesystem::exists(file, ignored); };
    require(std::filesystem::is_directory(path, ignored), folder, ": no such folder");
    require(is_there(config) || !is_there(path / "adapter_config.json"), folder,
            ": an adapter without the model that it changes; merge it into that model first");
    nlohmann::json section = model_section_from_hf(read_json_file(config.string()), config.string());
    if (!is_there(generation)) return section;
    const nlohmann::json document = read_json_file(generation.string());
    require(document.is_object(), generation.string(), ": expected an object, found ", found_text(document));
    const nlohmann::json ends = document.value("eos_token_id", nlohmann::json());
    if (ends.is_null() || ends == nlohmann::json::array()) return section;
    ModelConfig scratch;
    try {
        read_value(ends, text(generation.string(), ": eos_token_id"), {.min = 0}, scratch.eos_token_id);
    } catch (const UsageError& error) {
        throw Error(error.what());
    }
    section["eos_token_id"] = ends;
    check_marks(section, generation.string());
    return section;
}

}  // namespace coda
