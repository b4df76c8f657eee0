// Methods of texts and dicts, by Python's names.
#pragma once

#include <string_view>

#include "src/tokenize/chat/budget.h"
#include "src/tokenize/chat/function.h"

namespace coda::jinja {

/// Whether Python's type of `object` has the method, supported here or not.
bool has_method(const Value& object, std::string_view name);

/// self.name(given). Throws Error for a method that is not supported here.
Value call_method(const Value& self, const std::string& name, const Arguments& given, Budget& budget);

}  // namespace coda::jinja
