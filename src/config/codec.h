// How a setting of each type is described, read from JSON and written to it. schema.cpp applies this to the members of
// Config; a new type needs a new Codec.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/config/config.h"
#include "src/config/nearest.h"
#include "src/config/retired.h"
#include "src/core/errors.h"
#include "src/core/printable.h"

namespace coda {

/// Allowed values of a number. Both ends are always stated in errors.
struct Range {
    double min = -std::numeric_limits<double>::infinity();
    double max = std::numeric_limits<double>::infinity();
    bool min_excluded = false;
    bool max_excluded = false;

    bool contains(double value) const {
        return (min_excluded ? value > min : value >= min) && (max_excluded ? value < max : value <= max);
    }
};

/// How a flag's words become the JSON value: as JSON text, as one string, as one string where "null" means null, or as
/// a list of strings.
enum class FlagSyntax { json, string, nullable_string, list };

inline std::string number_text(double value) {
    const bool integral = std::abs(value) < 0x1p53 && value == std::trunc(value);
    return integral ? text(static_cast<std::int64_t>(value)) : nlohmann::json(value).dump();
}

inline std::string range_text(const Range& range) {
    if (std::isinf(range.max)) {
        if (std::isinf(range.min)) return "";
        return text(range.min_excluded ? " > " : " >= ", number_text(range.min));
    }
    return text(" in ", range.min_excluded ? "(" : "[", number_text(range.min), ", ", number_text(range.max),
                range.max_excluded ? ")" : "]");
}

/// A found value as errors show it. Arrays and objects are only named: they may be of any size.
inline std::string found_text(const nlohmann::json& value) {
    constexpr std::size_t kShown = 60;
    if (value.is_array()) return "an array";
    if (value.is_object()) return "an object";
    if (!value.is_string()) return value.dump();
    const std::string& string = value.get_ref<const std::string&>();
    const nlohmann::json shown = string.size() <= kShown ? string : string.substr(0, kShown) + "...";
    return text("the string ", shown.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Codec<T>: value_word (the VALUE of --help), syntax, expects(range), write(value), and read(value, where, range,
/// out), which returns false for a value that expects() rules out. `where` names the setting in errors about parts of
/// it.
template <class T>
struct Codec;

/// Reads `value` into `out`, or throws UsageError "WHERE: expected ..., found ...".
template <class T>
void read_value(const nlohmann::json& value, const std::string& where, const Range& range, T& out) {
    if (Codec<T>::read(value, where, range, out)) return;
    throw UsageError(text(where, ": expected ", Codec<T>::expects(range), ", found ", found_text(value)));
}

template <class Integer>
struct IntegerCodec {
    static constexpr FlagSyntax syntax = FlagSyntax::json;
    static std::string value_word() { return "INT"; }
    static std::string expects(const Range& range) { return "an integer" + range_text(range); }
    static nlohmann::json write(Integer value) { return value; }

    // A float without a fraction (1e6) is an integer too: JSON knows only numbers.
    static bool read(const nlohmann::json& value, const std::string&, const Range& range, Integer& out) {
        if (value.is_number_float()) {
            const double number = value.get<double>();
            if (!(std::abs(number) <= 0x1p53) || number != std::trunc(number)) return false;
            return assign(static_cast<std::int64_t>(number), range, out);
        }
        if (value.is_number_unsigned()) return assign(value.get<std::uint64_t>(), range, out);
        return value.is_number_integer() && assign(value.get<std::int64_t>(), range, out);
    }

  private:
    template <class Number>
    static bool assign(Number number, const Range& range, Integer& out) {
        if (!std::in_range<Integer>(number) || !range.contains(static_cast<double>(number))) return false;
        out = static_cast<Integer>(number);
        return true;
    }
};

template <>
struct Codec<std::int64_t> : IntegerCodec<std::int64_t> {};
template <>
struct Codec<std::uint64_t> : IntegerCodec<std::uint64_t> {};

template <>
struct Codec<double> {
    static constexpr FlagSyntax syntax = FlagSyntax::json;
    static std::string value_word() { return "NUMBER"; }
    static std::string expects(const Range& range) { return "a number" + range_text(range); }
    static nlohmann::json write(double value) { return value; }

    static bool read(const nlohmann::json& value, const std::string&, const Range& range, double& out) {
        if (!value.is_number()) return false;
        const double number = value.get<double>();
        if (!std::isfinite(number) || !range.contains(number)) return false;
        out = number;
        return true;
    }
};

template <>
struct Codec<bool> {
    static constexpr FlagSyntax syntax = FlagSyntax::json;
    static std::string value_word() { return "true|false"; }
    static std::string expects(const Range&) { return "true or false"; }
    static nlohmann::json write(bool value) { return value; }

    static bool read(const nlohmann::json& value, const std::string&, const Range&, bool& out) {
        if (!value.is_boolean()) return false;
        out = value.get<bool>();
        return true;
    }
};

/// Every string of a configuration is a path.
template <>
struct Codec<std::string> {
    static constexpr FlagSyntax syntax = FlagSyntax::string;
    static std::string value_word() { return "TEXT"; }
    static std::string expects(const Range&) { return "a non-empty string in UTF-8 without NUL"; }
    static nlohmann::json write(const std::string& value) { return value; }

    // The resolved config is written to the run log, and JSON has no encoding other than UTF-8. The system takes a path
    // up to its first NUL, so one with a NUL would name another file than the one that is written there.
    static bool read(const nlohmann::json& value, const std::string&, const Range&, std::string& out) {
        if (!value.is_string() || value.get_ref<const std::string&>().empty()) return false;
        if (value.get_ref<const std::string&>().find('\0') != std::string::npos) return false;
        try {
            static_cast<void>(value.dump());
        } catch (const nlohmann::json::type_error&) {
            return false;
        }
        out = value.get<std::string>();
        return true;
    }
};

/// A list of strings; a single string counts as a list of one.
template <>
struct Codec<std::vector<std::string>> {
    static constexpr FlagSyntax syntax = FlagSyntax::list;
    static std::string value_word() { return "FILE..."; }
    static std::string expects(const Range&) { return "a path, a glob or a list of them"; }
    static nlohmann::json write(const std::vector<std::string>& value) { return value; }

    static bool read(const nlohmann::json& value, const std::string& where, const Range& range,
                     std::vector<std::string>& out) {
        if (!value.is_string() && !value.is_array()) return false;
        const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
        out.clear();
        for (const nlohmann::json& element : list) {
            std::string path;
            read_value(element, text(where, "[", out.size(), "]"), range, path);
            out.push_back(std::move(path));
        }
        return true;
    }
};

/// A list of integers; one counts as a list of one and is written so, null as an empty list.
template <>
struct Codec<std::vector<std::int64_t>> {
    static constexpr FlagSyntax syntax = FlagSyntax::json;
    static std::string value_word() { return "INT|[INT, ...]|null"; }
    static std::string expects(const Range& range) {
        return Codec<std::int64_t>::expects(range) + ", a list of them or null";
    }
    static nlohmann::json write(const std::vector<std::int64_t>& value) {
        if (value.empty()) return nullptr;
        return value.size() == 1 ? nlohmann::json(value.front()) : nlohmann::json(value);
    }

    static bool read(const nlohmann::json& value, const std::string& where, const Range& range,
                     std::vector<std::int64_t>& out) {
        out.clear();
        if (value.is_null()) return true;
        if (!value.is_array()) return Codec<std::int64_t>::read(value, where, range, out.emplace_back());
        for (const nlohmann::json& element : value) {
            std::int64_t token = 0;
            read_value(element, text(where, "[", out.size(), "]"), range, token);
            out.push_back(token);
        }
        return true;
    }
};

/// The names of an enum's values, in the order that errors and --help list them.
template <class Enum, std::size_t count>
using Names = std::array<std::pair<const char*, Enum>, count>;

constexpr Names<Recompute, 3> names_of(Recompute) {
    return {{{"none", Recompute::none}, {"swiglu", Recompute::swiglu}, {"mlp", Recompute::mlp}}};
}
constexpr Names<MlpKind, 3> names_of(MlpKind) {
    return {{{"swiglu", MlpKind::swiglu}, {"gelu_tanh", MlpKind::gelu_tanh}, {"gelu_exact", MlpKind::gelu_exact}}};
}
constexpr Names<PositionEmbeddings, 2> names_of(PositionEmbeddings) {
    return {{{"rope", PositionEmbeddings::rope}, {"learned", PositionEmbeddings::learned}}};
}
constexpr Names<NormKind, 2> names_of(NormKind) {
    return {{{"rmsnorm", NormKind::rmsnorm}, {"layernorm", NormKind::layernorm}}};
}
constexpr Names<Moments, 2> names_of(Moments) { return {{{"fp32", Moments::fp32}, {"bf16", Moments::bf16}}}; }
constexpr Names<LrScheduleType, 4> names_of(LrScheduleType) {
    return {{{"cosine", LrScheduleType::cosine},
             {"linear", LrScheduleType::linear},
             {"constant", LrScheduleType::constant},
             {"wsd", LrScheduleType::wsd}}};
}
constexpr Names<DeviceChoice, 3> names_of(DeviceChoice) {
    return {{{"auto", DeviceChoice::automatic}, {"cuda", DeviceChoice::cuda}, {"cpu", DeviceChoice::cpu}}};
}

template <class Enum>
requires std::is_enum_v<Enum>
struct Codec<Enum> {
    static constexpr FlagSyntax syntax = FlagSyntax::string;
    static std::string value_word() { return join("", "|"); }
    static std::string expects(const Range&) { return "one of " + join("\"", ", "); }

    static nlohmann::json write(Enum value) {
        for (const auto& [name, named] : names_of(Enum{})) {
            if (named == value) return name;
        }
        throw Error("an enumerator of the configuration has no name");
    }

    static bool read(const nlohmann::json& value, const std::string&, const Range&, Enum& out) {
        for (const auto& [name, named] : names_of(Enum{})) {
            if (value == name) {
                out = named;
                return true;
            }
        }
        return false;
    }

  private:
    static std::string join(const char* quote, const char* separator) {
        std::string joined;
        for (const auto& [name, value] : names_of(Enum{}))
            joined += text(joined.empty() ? "" : separator, quote, name, quote);
        return joined;
    }
};

/// Throws UsageError for a member of the object that `known` does not have, unless it is a retired one with its fixed
/// value.
inline void refuse_unknown_parts(const nlohmann::json& object, const std::string& where, const nlohmann::json& known) {
    for (const auto& [name, value] : object.items()) {
        if (known.contains(name)) continue;
        std::vector<std::string> names;
        for (const auto& [known_name, default_value] : known.items()) names.push_back(where + "." + known_name);
        const std::string path = where + "." + name;
        if (const RetiredKey* retired = retired_key(path.substr(path.find_first_not_of('-')))) {
            require_fixed(*retired, value, path);
            continue;
        }
        throw UsageError(
            text("unknown key ", printable(path, ""), "; the nearest known key is ", nearest(path, names)));
    }
}

/// "bf16", "fp8", or an object of what differs from "fp8".
template <>
struct Codec<PrecisionConfig> {
    static constexpr FlagSyntax syntax = FlagSyntax::json;
    static std::string value_word() { return "bf16|fp8|JSON"; }
    static std::string expects(const Range&) { return R"("bf16", "fp8" or an object {"bf16_last_layers": ...})"; }

    static nlohmann::json write(const PrecisionConfig& value) {
        if (!value.has_fp8) return "bf16";
        nlohmann::json object = nlohmann::json::object();
        for_each_part(value, [&](const char* name, const auto& part, const Range&) {
            object[name] = Codec<std::decay_t<decltype(part)>>::write(part);
        });
        return object;
    }

    static bool read(const nlohmann::json& value, const std::string& where, const Range&, PrecisionConfig& out) {
        out = value == "bf16" ? PrecisionConfig{} : PrecisionConfig::fp8();
        if (!value.is_object()) return value == "bf16" || value == "fp8";
        refuse_unknown_parts(value, where, write(PrecisionConfig::fp8()));
        for_each_part(out, [&](const char* name, auto& part, const Range& range) {
            if (const auto found = value.find(name); found != value.end()) {
                read_value(*found, text(where, ".", name), range, part);
            }
        });
        return true;
    }

  private:
    template <class Precision, class Fn>
    static void for_each_part(Precision& value, const Fn& fn) {
        const Range layers{.min = 0, .max = 65536};
        fn("bf16_first_layers", value.bf16_first_layers, layers);
        fn("bf16_last_layers", value.bf16_last_layers, layers);
        fn("count_interval", value.count_interval, Range{.min = 0});
    }
};

/// A value or null.
template <class T>
struct Codec<std::optional<T>> {
    static constexpr FlagSyntax syntax =
        Codec<T>::syntax == FlagSyntax::string ? FlagSyntax::nullable_string : Codec<T>::syntax;
    static std::string value_word() { return Codec<T>::value_word() + "|null"; }
    static std::string expects(const Range& range) { return Codec<T>::expects(range) + " or null"; }
    static nlohmann::json write(const std::optional<T>& value) {
        return value ? Codec<T>::write(*value) : nlohmann::json();
    }
    static bool read(const nlohmann::json& value, const std::string& where, const Range& range, std::optional<T>& out) {
        out.reset();
        return value.is_null() || Codec<T>::read(value, where, range, out.emplace());
    }
};

}  // namespace coda
