// One segment of input to tokens: validity, JSON, document marks, encoding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/tokenize/encoder.h"
#include "src/tokenize/given_text.h"
#include "src/tokenize/segments.h"

namespace coda {

struct DocumentOptions {
    std::vector<std::uint32_t> bos, eos;  // put before and after every document that has text
    std::string field = "text";           // of a JSON line
    InvalidUtf8 invalid_utf8 = InvalidUtf8::stop;
};

struct Encoded {
    std::vector<std::uint32_t> train, validation;
    std::int64_t documents = 0;        // with text
    std::int64_t empty_documents = 0;  // JSON lines whose field is "": no tokens, no marks
    std::int64_t replaced = 0;         // stretches of text in which invalid UTF-8 was replaced
};

/// `val_fraction` divides the documents of JSON lines, see is_validation(); a text's segment says where it belongs.
/// Throws Error with the input's name and the byte or line: invalid UTF-8 (unless it is to be replaced), a line that is
/// not a JSON object, or one whose field is missing or not a string.
Encoded encode_segment(const Segment& segment, const DocumentOptions& options, double val_fraction, Encoder& encoder);

}  // namespace coda
