// Filters of what has elements.
#pragma once

#include <optional>
#include <string>

#include "src/tokenize/chat/budget.h"
#include "src/tokenize/chat/function.h"

namespace coda::jinja {

/// As filtered(); nothing for a filter that is not one of these.
std::optional<Value> list_filtered(const std::string& name, const Value& value, const Arguments& given, Budget& budget);

}  // namespace coda::jinja
