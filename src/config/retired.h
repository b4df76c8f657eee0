// Keys of earlier versions: each has one value in every run now. Configurations that were written in full, as every
// checkpoint's is, still hold them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coda {

struct RetiredKey {
    std::string path;      // "precision.margin"
    nlohmann::json fixed;  // its value in every run
    std::string reason;    // "it is 0 in every run"
};

const std::vector<RetiredKey>& retired_keys();

/// The retired key at `path`; a null pointer if `path` is not retired.
const RetiredKey* retired_key(const std::string& path);

/// Throws UsageError "WHERE is gone: REASON; take it out" unless `value` is the fixed one.
void require_fixed(const RetiredKey& key, const nlohmann::json& value, const std::string& where);

/// "WHERE is gone: REASON; take it out". `where` is the key's path, or its flag.
std::string gone_text(const RetiredKey& key, const std::string& where);

/// The configuration of a run of an earlier version without its retired keys, whatever their values.
nlohmann::json without_retired_keys(nlohmann::json document);

/// The retired keys of a recorded precision, "fp8" or an object, whose value is not the fixed one.
std::vector<const RetiredKey*> retired_choices(const nlohmann::json& precision);

}  // namespace coda
