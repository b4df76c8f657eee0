// A Hugging Face config.json that is being read. Its keys have the names of LLaMA's, which a family may call otherwise.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "src/config/codec.h"
#include "src/core/errors.h"

namespace coda {

/// What a family's files call a key of LLaMA's.
struct HfKeyName {
    const char *llama, *own;
};

/// Errors name the file, and the key as the file has it.
class HfConfig {
  public:
    HfConfig(const nlohmann::json& hf, const std::string& file, std::span<const HfKeyName> names)
        : hf_(hf), file_(file), names_(names) {}

    /// The file's name of `key`.
    const char* name(const char* key) const {
        for (const HfKeyName& each : names_) {
            if (std::string_view(each.llama) == key) return each.own;
        }
        return key;
    }

    /// The value of `key`; null when it is absent.
    const nlohmann::json& get(const char* key) const {
        static const nlohmann::json absent;
        const auto found = hf_.find(name(key));
        return found == hf_.end() ? absent : *found;
    }

    bool has(const char* key) const { return hf_.contains(name(key)); }

    const nlohmann::json& required(const char* key) const {
        require(has(key), file_, ": missing key ", name(key));
        return get(key);
    }

    nlohmann::json or_default(const char* key, const nlohmann::json& fallback) const {
        return get(key).is_null() ? fallback : get(key);
    }

    /// Refuses a model that needs what this program lacks.
    void must_be(const char* key, const nlohmann::json& supported) const {
        if (get(key).is_null()) return;
        require(get(key) == supported, file_, ": ", name(key), " is ", found_text(get(key)), "; only ",
                supported.dump(), " is supported");
    }

    const std::string& file() const { return file_; }

  private:
    const nlohmann::json& hf_;
    const std::string& file_;
    std::span<const HfKeyName> names_;
};

}  // namespace coda
