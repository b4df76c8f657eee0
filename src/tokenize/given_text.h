// Texts as they come: bytes that may not be UTF-8, and lines of JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kernels/core/error.h"
#include "src/core/utf8.h"
#include "src/tokenize/python_json.h"

namespace coda {

/// What becomes of bytes that are no UTF-8, and of half a surrogate pair in JSON.
enum class InvalidUtf8 { stop, replace };

/// `text`, or `storage` with a mended copy of it, which `replaced` counts. `place(byte)` says where a byte of the text
/// is. Throws Error where it must not be mended.
template <class Place>
std::string_view valid_text(std::string_view text, InvalidUtf8 invalid, std::int64_t& replaced, std::string& storage,
                            Place&& place) {
    const std::size_t valid = valid_utf8(text);
    if (valid == text.size()) return text;
    require(invalid == InvalidUtf8::replace, place(valid),
            ": invalid UTF-8; convert the file (iconv), or give --invalid-utf8 replace, which puts U+FFFD there");
    ++replaced;
    storage = replace_invalid_utf8(text);
    return storage;
}

/// What `take` takes of a line's JSON, as Python reads it; two of its results can be compared. Throws Error naming
/// `place` for a line that Python refuses, and where it must not be mended.
template <class Take>
auto from_json_line(std::string_view given, const std::string& place, InvalidUtf8 invalid, std::int64_t& replaced,
                    Take&& take) {
    std::string storage;
    const std::string line(valid_text(given, invalid, replaced, storage,
                                      [&](std::size_t byte) { return text(place, ": byte ", byte, " of the line"); }));
    bool mended = false;
    auto taken = take(parse_python_json(line, place, kReplacementEscape, &mended));
    // Only surrogates without partner make a difference between these two.
    if (!mended || taken == take(parse_python_json(line, place, ""))) return taken;
    require(
        invalid == InvalidUtf8::replace, place,
        ": the text has half of a surrogate pair (\\ud800 to \\udfff), which is no character; mend the file, or give "
        "--invalid-utf8 replace, which puts U+FFFD there");
    ++replaced;
    return taken;
}

}  // namespace coda
