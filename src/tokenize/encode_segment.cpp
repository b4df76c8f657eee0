#include "src/tokenize/encode_segment.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/core/error.h"
#include "src/core/utf8.h"
#include "src/tokenize/python_json.h"

namespace coda {
namespace {

/// `text`, or `storage` with a mended copy of it. `place(byte)` says where a byte of the text is.
template <class Place>
std::string_view valid_text(std::string_view text, const DocumentOptions& options, Encoded& result,
                            std::string& storage, Place&& place) {
    const std::size_t valid = valid_utf8(text);
    if (valid == text.size()) return text;
    require(options.invalid_utf8 == InvalidUtf8::replace, place(valid),
            ": invalid UTF-8; convert the file (iconv), or give --invalid-utf8 replace, which puts U+FFFD there");
    ++result.replaced;
    storage = replace_invalid_utf8(text);
    return storage;
}

void encode_text(const Segment& segment, const DocumentOptions& options, Encoder& encoder, Encoded& result) {
    std::vector<std::uint32_t>& out = segment.validation ? result.validation : result.train;
    std::string storage;
    const std::string_view text = valid_text(segment.text, options, result, storage, [&](std::size_t byte) {
        return coda::text(segment.source, ": byte ", segment.offset + static_cast<std::int64_t>(byte));
    });
    if (segment.first) out.insert(out.end(), options.bos.begin(), options.bos.end());
    // The lookahead is a valid code point, so mending the text before it has not changed its length.
    encoder.encode(text, {.begins = segment.first, .lookahead = segment.lookahead}, out);
    if (segment.last) out.insert(out.end(), options.eos.begin(), options.eos.end());
    result.documents += segment.last ? 1 : 0;
}

std::string field_of(const nlohmann::json& object, const std::string& place, const std::string& field) {
    require(object.is_object(), place, ": a JSON object with the field \"", field, "\" is expected on every line");
    const auto found = object.find(field);
    require(found != object.end(), place, ": no field \"", field, "\"; name the one that holds the text with --field");
    require(found->is_string(), place, ": the field \"", field, "\" is not a string");
    return found->get<std::string>();
}

/// The document of a JSON line.
std::string text_of_line(const std::string& line, const std::string& place, const DocumentOptions& options,
                         Encoded& result) {
    const auto read = [&](std::string_view lone) {
        return field_of(parse_python_json(line, place, lone), place, options.field);
    };
    std::string document = read(kReplacementEscape);
    if (line.find("\\ud") == std::string::npos && line.find("\\uD") == std::string::npos) return document;
    // Only surrogates without partner make a difference between these two.
    if (document == read("")) return document;
    require(
        options.invalid_utf8 == InvalidUtf8::replace, place,
        ": the text has half of a surrogate pair (\\ud800 to \\udfff), which is no character; mend the file, or give "
        "--invalid-utf8 replace, which puts U+FFFD there");
    ++result.replaced;
    return document;
}

void encode_line(std::string_view line, const std::string& place, bool validation, const DocumentOptions& options,
                 Encoder& encoder, Encoded& result) {
    std::string storage;
    line = valid_text(line, options, result, storage,
                      [&](std::size_t byte) { return text(place, ": byte ", byte, " of the line"); });
    const std::string document = text_of_line(std::string(line), place, options, result);
    if (document.empty()) {
        ++result.empty_documents;
        return;
    }
    std::vector<std::uint32_t>& out = validation ? result.validation : result.train;
    out.insert(out.end(), options.bos.begin(), options.bos.end());
    encoder.encode(document, out);
    out.insert(out.end(), options.eos.begin(), options.eos.end());
    ++result.documents;
}

}  // namespace

Encoded encode_segment(const Segment& segment, const DocumentOptions& options, Encoder& encoder) {
    Encoded result;
    if (segment.format == TextFormat::txt) {
        encode_text(segment, options, encoder, result);
        return result;
    }
    std::int64_t line = segment.line, document = segment.document;
    for (std::string_view rest = segment.text; !rest.empty(); ++line) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view content = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (is_blank_line(content)) continue;
        encode_line(content, text(segment.source, ": line ", line), is_validation(document++, options.val_fraction),
                    options, encoder, result);
    }
    return result;
}

}  // namespace coda
