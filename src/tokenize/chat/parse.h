// A template's source as statements.
#pragma once

#include <string_view>

#include "src/tokenize/chat/budget.h"
#include "src/tokenize/chat/syntax.h"

namespace coda::jinja {

/// Throws Error "line N: ..." for what is not Jinja, and for a source that is not UTF-8, too long or nested too deep.
/// What only this interpreter lacks becomes a statement or expression that is an error when it is reached.
Body parse(std::string_view source, const ChatLimits& limits);

}  // namespace coda::jinja
