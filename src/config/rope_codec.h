// model.rope_scaling in JSON: Hugging Face's object.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "src/config/codec.h"

namespace coda {

constexpr Names<RopeType, 3> names_of(RopeType) {
    return {{{"llama3", RopeType::llama3}, {"linear", RopeType::linear}, {"yarn", RopeType::yarn}}};
}

/// All numbers of a type are required, as in Hugging Face: a forgotten factor must not become a default. Only yarn has
/// some that may be absent, with the defaults of transformers.
template <>
struct Codec<RopeScaling> {
    static constexpr FlagSyntax syntax = FlagSyntax::json;
    static std::string value_word() { return "JSON"; }
    static std::string expects(const Range&) { return R"(an object {"rope_type": "llama3", "factor": ...})"; }

    static nlohmann::json write(const RopeScaling& value) {
        nlohmann::json object{{"rope_type", Codec<RopeType>::write(value.type)}};
        for_each_part(value, [&](const char* name, const auto& part, const Range&, bool) {
            const nlohmann::json json = Codec<std::decay_t<decltype(part)>>::write(part);
            if (!json.is_null()) object[name] = json;
        });
        return object;
    }

    static bool read(const nlohmann::json& value, const std::string& where, const Range&, RopeScaling& out) {
        if (!value.is_object()) return false;
        const std::string type_key = where + ".rope_type";
        const nlohmann::json& type = part_of(value, where, "rope_type");
        if (!Codec<RopeType>::read(type, type_key, {}, out.type)) {
            throw UsageError(text(type_key, ": expected ", Codec<RopeType>::expects({}), " (or null for all of ", where,
                                  "), found ", found_text(type)));
        }
        nlohmann::json known{{"rope_type", nullptr}};
        for_each_part(out, [&](const char* name, auto&, const Range&, bool) { known[name] = nullptr; });
        refuse_unknown_parts(value, where, known);
        for_each_part(out, [&](const char* name, auto& part, const Range& range, bool required) {
            if (required || value.contains(name))
                read_value(part_of(value, where, name), text(where, ".", name), range, part);
        });
        if (out.type == RopeType::llama3 && out.high_freq_factor <= out.low_freq_factor) {
            throw UsageError(text(where, ".high_freq_factor: expected more than low_freq_factor ", out.low_freq_factor,
                                  ", found ", out.high_freq_factor));
        }
        if (out.type == RopeType::yarn && out.beta_fast < out.beta_slow) {
            throw UsageError(
                text(where, ".beta_fast: expected at least beta_slow ", out.beta_slow, ", found ", out.beta_fast));
        }
        return true;
    }

  private:
    /// fn(name, member, range, whether it is required) of what the type has next to rope_type.
    template <class Scaling, class Fn>
    static void for_each_part(Scaling& value, const Fn& fn) {
        const Range above_zero{.min = 0, .min_excluded = true};
        fn("factor", value.factor, Range{.min = 1}, true);
        if (value.type == RopeType::linear) return;
        if (value.type == RopeType::llama3) {
            fn("low_freq_factor", value.low_freq_factor, above_zero, true);
            fn("high_freq_factor", value.high_freq_factor, above_zero, true);
        }
        fn("original_max_position_embeddings", value.original_max_position_embeddings, Range{.min = 1, .max = 0x1p31},
           true);
        if (value.type == RopeType::llama3) return;
        fn("beta_fast", value.beta_fast, above_zero, false);
        fn("beta_slow", value.beta_slow, above_zero, false);
        fn("truncate", value.truncate, Range{}, false);
        fn("attention_factor", value.attention_factor, above_zero, false);
        fn("mscale", value.mscale, Range{.min = 0}, false);
        fn("mscale_all_dim", value.mscale_all_dim, Range{.min = 0}, false);
    }
    static const nlohmann::json& part_of(const nlohmann::json& object, const std::string& where, const char* name) {
        const auto found = object.find(name);
        if (found == object.end()) throw UsageError(text("missing key ", where, ".", name));
        return *found;
    }
};

}  // namespace coda
