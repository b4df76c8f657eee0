// Operators between values, and their parts by name and index.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/tokenize/chat/budget.h"
#include "src/tokenize/chat/value.h"

namespace coda::jinja {

/// "+", "-", "*", "/", "//" or "%". Throws Error for types that do not have it, and for integers beyond 64 bits.
Value arithmetic(const std::string& sign, const Value& a, const Value& b, Budget& budget);
Value negative(const Value& value);

/// "==", "<", "not in" and so on.
bool compares(const std::string& sign, const Value& a, const Value& b, Budget& budget);

/// object.name, as Jinja looks for it: a method first, then a key. Undefined where there is neither.
Value attribute(const Value& object, const std::string& name, Budget& budget);
/// object[key]: a key first.
Value item(const Value& object, const Value& key, Budget& budget);
/// object[start:stop:step], where each may be none.
Value slice(const Value& object, const Value& start, const Value& stop, const Value& step, Budget& budget);

/// What "for" goes through: elements, keys, characters. A generator is empty afterwards.
std::vector<Value> items_of(const Value& value, Budget& budget);

/// len(value).
std::int64_t length(const Value& value, Budget& budget);

/// Throws Error that says why, if the value is undefined.
void require_defined(const Value& value);

}  // namespace coda::jinja
