// A part of a tokenizer's file together with its place, which every error names.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/core/error.h"

namespace coda {

struct JsonPart {
    const nlohmann::json& value;
    std::string where;  // "tokenizer.json: model.vocab"

    static constexpr std::uint64_t kMaxIds = std::uint64_t{1} << 22;

    template <class... Words>
    void require_that(bool condition, const Words&... words) const {
        require(condition, where, ": ", words...);
    }
    bool is_null() const { return value.is_null(); }
    const nlohmann::json& object() const;
    const nlohmann::json& array() const;
    /// The value of a key, null where there is none.
    JsonPart operator[](const char* key) const;
    /// The i-th of a list, and the value of an object's key. Their places are joined without a stream: a
    /// vocabulary has 10^5 keys.
    JsonPart element(std::size_t i) const { return {value[i], where + "[" + std::to_string(i) + "]"}; }
    JsonPart entry(const std::string& key, const nlohmann::json& of_key) const { return {of_key, where + "." + key}; }
    std::string string() const;
    std::string filled_string() const;  // not ""
    bool flag(bool fallback) const;     // null is the fallback
    std::int64_t count() const;         // an integer from 0 on
    std::uint32_t id() const;           // below kMaxIds
    std::string type() const { return (*this)["type"].string(); }

    /// Throws Error: `what` is not supported, and why or what to do.
    [[noreturn]] void unsupported(const std::string& what, const std::string& why) const;
};

/// Calls step(part) for every part of a Sequence, whose list is `key`, and of the Sequences in it; for any other part
/// itself. Not for null.
template <class Step>
void each_step(const JsonPart& part, const char* key, Step&& step, int depth = 0) {
    if (part.is_null()) return;
    if (part.type() != "Sequence") return step(part);
    part.require_that(depth < 8, "Sequences are nested more than 8 deep");
    const JsonPart list = part[key];
    for (std::size_t i = 0; i < list.array().size(); ++i) each_step(list.element(i), key, step, depth + 1);
}

}  // namespace coda
