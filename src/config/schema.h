// The one table of configuration keys. It drives parsing, unknown-key errors, --print-config and the generated flags.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/config/codec.h"
#include "src/config/config.h"

namespace coda {

/// One key: "section.name", or a bare "name" at the top level.
struct Key {
    std::string section;       // "training"; empty at the top level
    std::string name;          // "steps"
    std::string value_word;    // the VALUE of --help, such as INT
    std::string default_text;  // as --help shows it; empty for a required key
    std::string help;
    bool required = false;
    bool null_is_absent = false;  // parse_config derives the value
    FlagSyntax syntax = FlagSyntax::json;

    /// Sets the member of `config`. Throws UsageError "WHERE: expected ..., found ...".
    std::function<void(const nlohmann::json& value, const std::string& where, Config& config)> read;
    std::function<nlohmann::json(const Config& config)> write;

    std::string path() const { return section.empty() ? name : section + "." + name; }
    /// The key's value in a configuration document; a null pointer when it is absent.
    const nlohmann::json* find(const nlohmann::json& document) const;
    /// Sets the key's value in a configuration document.
    void put(nlohmann::json& document, nlohmann::json value) const;
};

/// All keys, section by section, in the order of Config's members.
const std::vector<Key>& schema();

/// The key of this name. Throws Error if there is none.
const Key& key_of(const std::string& section, const std::string& name);

/// Reads the keys that `document` has and checks each by itself (type and range). Throws UsageError for a bad value,
/// and for an unknown key or section, naming the nearest known one. Absent keys keep their default; required ones may
/// be absent.
Config read_present_keys(const nlohmann::json& document);

}  // namespace coda
