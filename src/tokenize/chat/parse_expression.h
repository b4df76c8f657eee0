// Expressions of a template, with Jinja's grammar.
#pragma once

#include "src/tokenize/chat/syntax.h"
#include "src/tokenize/chat/token_stream.h"

namespace coda::jinja {

/// An expression, or several with commas, which make a tuple. Without `conditional`, "a if b" ends before "if". It
/// ends before the name `end` where one is given.
ExpressionPtr parse_tuple(TokenStream& tokens, bool conditional = true, std::string_view end = {});

ExpressionPtr parse_expression(TokenStream& tokens);

/// "| a | b(c)" after `input`, which may be null.
ExpressionPtr parse_filters(TokenStream& tokens, ExpressionPtr input);

/// As of a loop or an assignment, where a namespace's member may be assigned to.
Target parse_target(TokenStream& tokens, bool members);

}  // namespace coda::jinja
