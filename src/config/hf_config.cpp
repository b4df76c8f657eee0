// Between the model section and Hugging Face's config.json.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "src/config/codec.h"
#include "src/config/config.h"
#include "src/config/hf_family.h"
#include "src/config/hf_reader.h"
#include "src/config/hf_rope.h"
#include "src/config/json_file.h"
#include "src/config/quantization.h"
#include "src/config/schema.h"
#include "src/core/errors.h"

namespace coda {

namespace {

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
nlohmann::json window_of(const HfConfig& hf, const HfFamily& family, const nlohmann::json& layers) {
    const nlohmann::json none = 0;
    if (!family.sliding_window || (family.window_by_layers && !windows_in_layers(hf, layers))) return none;
    const nlohmann::json usual = *family.sliding_window;
    const nlohmann::json& window = hf.has("sliding_window") ? hf.get("sliding_window") : usual;
    return window.is_null() ? none : window;
}

/// The MLP of the file's activation function.
MlpKind mlp_of(const HfConfig& hf, const HfFamily& family) {
    const nlohmann::json found = hf.or_default("hidden_act", family.activations.front().name);
    std::string known;
    for (const HfActivation& each : family.activations) {
        if (found == each.name) return each.mlp;
        known += (known.empty() ? "" : ", ") + nlohmann::json(each.name).dump();
    }
    throw Error(text(hf.file(), ": ", hf.name("hidden_act"), " is ", found_text(found), "; only ", known,
                     family.activations.size() == 1 ? " is" : " are", " supported"));
}

void refuse_unsupported(const HfConfig& hf, const HfFamily& family) {
    if (!family.attention_bias_key) hf.must_be("attention_bias", family.attention_bias);
    if (!family.window_by_layers) hf.must_be("use_sliding_window", false);
    if (hf.or_default("use_sliding_window", false) != true) {
        for (const nlohmann::json& type : hf.get("layer_types"))
            require(type == "full_attention", hf.file(), ": layer_types has ", found_text(type),
                    ", and use_sliding_window is not true; only \"full_attention\" is supported then");
    }
    for (const HfFixedKey& fixed : family.fixed) hf.must_be(fixed.key, fixed.value);
    hf.must_be("attention_dropout", 0.0);
    hf.must_be("partial_rotary_factor", 1.0);
    check_quantization(hf.get("quantization_config"), hf.file());
    const nlohmann::json& architectures = hf.get("architectures");
    require(architectures.is_null() || architectures == nlohmann::json::array({family.architecture}), hf.file(),
            ": architectures: only [\"", family.architecture, "\"] is supported");
}

}  // namespace

nlohmann::json to_hf_json(const ModelConfig& model) {
    Config config;
    config.model = model;
    nlohmann::json hf = to_json(config)["model"];
    std::string alien;
    const HfFamily* found = hf_family_with(model, alien);
    require(found != nullptr, "--export: ", alien);
    const HfFamily& family = *found;
    const bool window = model.sliding_window > 0;
    for (const char* key : {"attention_out_bias", "mlp", "norm", "position_embeddings", "qk_norm"})
        hf.erase(key);  // the model_type and its keys say them
    if (!window) hf.erase("sliding_window");
    if (family.window_by_layers) {
        hf["use_sliding_window"] = window;
        hf["max_window_layers"] = window ? 0 : model.num_hidden_layers;
    }
    hf["architectures"] = {family.architecture};
    hf["model_type"] = family.model_type;
    hf["torch_dtype"] = "float32";
    hf["hidden_act"] =
        std::find_if(family.activations.begin(), family.activations.end(), [&](const HfActivation& each) {
            return each.mlp == model.mlp;
        })->name;
    for (const char* key : family.without) hf.erase(key);
    for (const HfFixedKey& fixed : family.fixed) hf[fixed.key] = fixed.value;
    for (const char* key : family.dropouts) hf[key] = 0.0;
    if (family.position_embeddings == PositionEmbeddings::rope) hf["pretraining_tp"] = 1;
    hf["use_cache"] = true;
    for (const HfKeyName& name : family.names) hf[name.own] = hf.at(name.llama);
    for (const HfKeyName& name : family.names) hf.erase(name.llama);
    return hf;
}

std::vector<std::string> hf_refusals(const ModelConfig& model) {
    std::vector<std::string> refusals;
    if (std::string alien; hf_family_with(model, alien) == nullptr) refusals.push_back(alien);
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
    const HfFamily& family = hf_family_of(json, file);
    const HfConfig hf(json, file, family.names);
    const auto lacks = [&](std::string_view key) {
        return std::find(family.without.begin(), family.without.end(), key) != family.without.end();
    };
    refuse_unsupported(hf, family);

    // The defaults of transformers, not ours: a file that omits a key means them.
    nlohmann::json section;
    for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"})
        section[key] = hf.required(key);
    if (family.widths_of_mlp == 0 || !hf.get("intermediate_size").is_null())
        section["intermediate_size"] = hf.required("intermediate_size");
    section["num_key_value_heads"] = lacks("num_key_value_heads") ? nlohmann::json() : hf.get("num_key_value_heads");
    if (!hf.has("num_key_value_heads") && family.num_key_value_heads) {
        section["num_key_value_heads"] = *family.num_key_value_heads;
    }
    if (section["num_key_value_heads"].is_null()) section["num_key_value_heads"] = section["num_attention_heads"];
    if (!lacks("head_dim") && !hf.get("head_dim").is_null())
        section["head_dim"] = hf.get("head_dim");
    else if (family.head_dim)
        section["head_dim"] = *family.head_dim;
    section["norm"] = Codec<NormKind>::write(family.norm);
    section["rms_norm_eps"] = hf.or_default("rms_norm_eps", family.norm_eps);
    section["attention_bias"] =
        family.attention_bias_key ? hf.or_default("attention_bias", false) : nlohmann::json(family.attention_bias);
    section["attention_out_bias"] =
        family.attention_bias_key ? section["attention_bias"] : nlohmann::json(family.attention_out_bias);
    section["qk_norm"] = family.qk_norm;
    section["position_embeddings"] = Codec<PositionEmbeddings>::write(family.position_embeddings);
    section["mlp"] = Codec<MlpKind>::write(mlp_of(hf, family));
    section["mlp_bias"] = family.mlp_bias;
    section["tie_word_embeddings"] = hf.or_default("tie_word_embeddings", family.tie_word_embeddings);
    section["max_position_embeddings"] = hf.or_default("max_position_embeddings", family.max_position_embeddings);
    section["sliding_window"] = window_of(hf, family, section["num_hidden_layers"]);
    if (family.position_embeddings == PositionEmbeddings::rope) put_rope(hf, section);

    // These say nothing about the trained function, so a file without them leaves the choice to the run's config.
    for (const char* key : {"initializer_range", "bos_token_id", "eos_token_id"}) {
        if (hf.has(key)) section[key] = hf.get(key);
    }
    check_marks(section, file);

    Config config;
    for (const Key& key : schema()) {
        if (key.section != "model" || !section.contains(key.name)) continue;
        try {
            key.read(section[key.name], text(file, ": ", hf.name(key.name.c_str())), config);
        } catch (const UsageError& error) {
            throw Error(error.what());
        }
    }
    const ModelConfig& model = config.model;
    if (model.intermediate_size == 0) section["intermediate_size"] = family.widths_of_mlp * model.hidden_size;
    if (model.head_dim == 0) {
        require(model.hidden_size % model.num_attention_heads == 0, file, ": ", hf.name("hidden_size"), " ",
                model.hidden_size, " is not divisible by ", hf.name("num_attention_heads"), " ",
                model.num_attention_heads, ", and there is no head_dim");
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
