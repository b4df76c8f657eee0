// "value is NAME(arguments)".
#pragma once

#include <string>

#include "src/tokenize/chat/budget.h"
#include "src/tokenize/chat/function.h"

namespace coda::jinja {

/// Throws Error for a test that is not supported.
bool holds(const std::string& name, const Value& value, const Arguments& given, Budget& budget);

}  // namespace coda::jinja
