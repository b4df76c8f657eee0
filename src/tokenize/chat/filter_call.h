// A filter that is applied to a value.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenize/chat/arguments.h"
#include "src/tokenize/chat/operators.h"
#include "src/tokenize/chat/value_text.h"

namespace coda::jinja {

struct FilterCall {
    const std::string& what;  // "the filter NAME"
    const Value& value;
    const Arguments& given;
    Budget& budget;

    Bound bound(std::initializer_list<std::string_view> parameters) const { return {what, given, parameters}; }
    std::vector<Value> items() const { return items_of(value, budget); }
    OriginText text() const {
        OriginText result = str(value, budget);
        budget.spend_text(result);
        return result;
    }
};

}  // namespace coda::jinja
