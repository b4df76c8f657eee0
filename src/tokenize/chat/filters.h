// "value | NAME(arguments)".
#pragma once

#include <string>

#include "src/tokenize/chat/budget.h"
#include "src/tokenize/chat/function.h"

namespace coda::jinja {

/// Throws Error for a filter that is not supported, and for values that it does not take.
Value filtered(const std::string& name, const Value& value, const Arguments& given, Budget& budget);

}  // namespace coda::jinja
