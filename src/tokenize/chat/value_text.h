// Values as text: Python's str() and json.dumps().
#pragma once

#include <string>
#include <string_view>

#include "src/tokenize/chat/budget.h"
#include "src/tokenize/chat/value.h"

namespace coda::jinja {

/// str(value); an undefined value is nothing. Throws Error for a value whose text is not supported, as a generator's.
OriginText str(const Value& value, Budget& budget);

/// A number as Python prints it: "1e+16", "0.1", "nan".
std::string float_text(double value);

struct JsonOptions {
    int indent = -1;  // spaces of a level; negative: all in one line
    std::string item = ", ", key = ": ";
    bool sort_keys = false, ascii = false;
};
/// json.dumps(). Throws Error for a value that JSON does not have.
OriginText json_text(const Value& value, const JsonOptions& options, Budget& budget);

}  // namespace coda::jinja
