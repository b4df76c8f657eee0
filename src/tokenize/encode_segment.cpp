#include "src/tokenize/encode_segment.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/core/error.h"

namespace coda {
namespace {

void encode_text(const Segment& segment, const DocumentOptions& options, Encoder& encoder, Encoded& result) {
    std::vector<std::uint32_t>& out = segment.validation ? result.validation : result.train;
    std::string storage;
    const std::string_view text =
        valid_text(segment.text, options.invalid_utf8, result.replaced, storage, [&](std::size_t byte) {
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

void encode_line(std::string_view line, const std::string& place, bool validation, const DocumentOptions& options,
                 Encoder& encoder, Encoded& result) {
    const std::string document =
        from_json_line(line, place, options.invalid_utf8, result.replaced,
                       [&](const nlohmann::json& object) { return field_of(object, place, options.field); });
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

Encoded encode_segment(const Segment& segment, const DocumentOptions& options, double val_fraction, Encoder& encoder) {
    Encoded result;
    if (segment.format == TextFormat::txt) {
        encode_text(segment, options, encoder, result);
        return result;
    }
    for_each_line(segment, [&](std::string_view line, const std::string& place, std::int64_t document) {
        encode_line(line, place, is_validation(document, val_fraction), options, encoder, result);
    });
    return result;
}

}  // namespace coda
