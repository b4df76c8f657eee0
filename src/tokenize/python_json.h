// A line of JSON as Python's json module reads it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace coda {

/// What stands for a surrogate that belongs to no pair ("\ud83d"), which is no character.
inline constexpr std::string_view kReplacementEscape = "\\ufffd";

/// `line`, valid UTF-8, as JSON that every reader takes: what Python's module reads beyond it is replaced. NaN and
/// infinities become null, numbers with an exponent or of many digits 0, lone surrogates `lone`.
std::string strict_json(std::string_view line, std::string_view lone);

/// The value of a line. Of a key given twice the last value holds, as in Python. `lone` is as in strict_json. `mended`
/// is set where it is not strict JSON. Throws Error naming `place` for a line that Python's module refuses.
nlohmann::json parse_python_json(const std::string& line, const std::string& place, std::string_view lone,
                                 bool* mended = nullptr);

}  // namespace coda
