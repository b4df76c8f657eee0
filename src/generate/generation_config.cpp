#include "src/generate/generation_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "kernels/core/error.h"
#include "src/config/json_file.h"
#include "src/core/choice_options.h"

namespace coda {
namespace {

using nlohmann::json;

/// Keys that change no text: where the file is from, lengths that the command line gives, and how the library computes.
const std::set<std::string> kWithoutEffect{"_from_model_config",
                                           "transformers_version",
                                           "bos_token_id",
                                           "pad_token_id",
                                           "decoder_start_token_id",
                                           "use_cache",
                                           "cache_implementation",
                                           "cache_config",
                                           "return_dict_in_generate",
                                           "output_scores",
                                           "output_logits",
                                           "output_attentions",
                                           "output_hidden_states",
                                           "max_length",
                                           "max_new_tokens",
                                           "max_time",
                                           "num_return_sequences",
                                           "trust_remote_code",
                                           "chat_format",
                                           "low_memory",
                                           "disable_compile",
                                           "compile_config"};

/// Whether a key that is not known is switched off, whatever it does: null, false, nothing, or the 0 or 1 with which
/// transformers writes what it does not use.
bool is_off(const std::string& key, const json& value) {
    if (value.is_null() || value == false) return true;
    if (value.is_structured()) return value.empty();
    const bool counts = key == "num_beams" || key == "num_beam_groups" || key == "typical_p" ||
                        key == "length_penalty" || key == "encoder_repetition_penalty" || key == "guidance_scale";
    return value.is_number() && value.get<double>() == (counts ? 1 : 0);
}

/// An integer from 0 to 2^31 - 1.
bool is_count(const json& value) { return value.is_number_integer() && value >= 0 && value < std::int64_t{1} << 31; }

class Reader {
  public:
    Reader(const json& document, const std::string& file) : document_(document), file_(file) {
        require(document.is_object(), file, ": expected a JSON object, found ", document.type_name());
    }

    /// Null where the file has no such key.
    const json& take(const char* key) {
        static const json kNull;
        read_.insert(key);
        const auto found = document_.find(key);
        return found == document_.end() ? kNull : *found;
    }
    [[noreturn]] void refuse(const char* key, const char* expected, const json& value) const {
        throw Error(text(file_, ": ", key, ": expected ", expected, ", found ", value.dump(-1, ' ', true)));
    }

    std::optional<float> number(const char* key) {
        const json& value = take(key);
        if (value.is_null()) return std::nullopt;
        if (!value.is_number()) refuse(key, "a number", value);
        return value.get<float>();
    }

    std::int32_t token(const char* key, const json& value) const {
        if (!is_count(value)) refuse(key, "a token id or a list of them", value);
        return value.get<std::int32_t>();
    }

    /// One value or a list of them, each through `read`.
    template <class Read>
    void each(const char* key, Read&& read) {
        const json& value = take(key);
        if (value.is_array()) {
            for (const json& element : value) read(element);
        } else if (!value.is_null()) {
            read(value);
        }
    }

    std::vector<std::string> left_over() const {
        std::vector<std::string> keys;
        for (const auto& [key, value] : document_.items()) {
            if (!read_.contains(key) && !kWithoutEffect.contains(key) && !is_off(key, value)) keys.push_back(key);
        }
        return keys;
    }

  private:
    const json& document_;
    const std::string& file_;
    std::set<std::string> read_{};
};

}  // namespace

ChoiceOptions GenerationConfig::over(ChoiceOptions choice) const {
    choice.temperature = temperature.value_or(choice.temperature);
    choice.top_k = top_k.value_or(choice.top_k);
    choice.top_p = top_p.value_or(choice.top_p);
    choice.min_p = min_p.value_or(choice.min_p);
    choice.repetition_penalty = repetition_penalty.value_or(choice.repetition_penalty);
    return choice;
}

GenerationConfig parse_generation_config(const json& document, const std::string& file) {
    Reader reader(document, file);
    GenerationConfig config;
    reader.each("eos_token_id",
                [&](const json& value) { config.end_tokens.push_back(reader.token("eos_token_id", value)); });
    reader.each("stop_strings", [&](const json& value) {
        if (!value.is_string() || value.get<std::string>().empty()) reader.refuse("stop_strings", "texts", value);
        config.stop.push_back(value.get<std::string>());
    });
    config.temperature = reader.number("temperature");
    config.top_p = reader.number("top_p");
    config.min_p = reader.number("min_p");
    config.repetition_penalty = reader.number("repetition_penalty");
    if (const json& value = reader.take("top_k"); !value.is_null()) {
        if (!is_count(value)) reader.refuse("top_k", "an integer >= 0", value);
        config.top_k = value.get<std::int32_t>();
    }
    if (const json& value = reader.take("do_sample"); !value.is_null()) {
        if (!value.is_boolean()) reader.refuse("do_sample", "true or false", value);
        if (!value.get<bool>()) config.temperature = 0.0F;
    }
    if (const auto problem = choice_problem(config.over({}))) {
        throw Error(text(file, ": ", problem->option, ": ", problem->text));
    }
    config.ignored = reader.left_over();
    return config;
}

GenerationConfig generation_config_in(const std::filesystem::path& folder) {
    const std::filesystem::path path = folder / "generation_config.json";
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return {};
    return parse_generation_config(read_json_file(path.string()), path.string());
}

}  // namespace coda
