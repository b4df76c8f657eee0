// Where a member of a JSON document is in its text, without a parse of what it holds.
#pragma once

#include <optional>
#include <string_view>

namespace coda {

/// The value of member `key` of the object that `document` is, as it is spelled there, without spaces around it.
/// Nothing where there is none, or its key is spelled with escapes. Of several the first. `document` must be valid
/// JSON.
std::optional<std::string_view> json_member(std::string_view document, std::string_view key);

}  // namespace coda
