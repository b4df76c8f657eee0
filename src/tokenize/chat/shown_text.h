// The order in which a chat template shows its parts: what its expressions put out, one after the other, whatever the
// conditions around them, with a sign for every value. Strings that are all known may still make another text.
#pragma once

#include <string_view>

#include "src/tokenize/chat/template.h"

namespace coda {

/// Characters that stand for values; no template has them.
namespace shown {
inline constexpr char kRole = '\x01', kContent = '\x02', kSystem = '\x03', kDate = '\x04', kBos = '\x05';
}

/// Whether it is what render_chat() writes for the family: messages with header, content and end, in this order, then
/// the header of the answer.
bool is_order_of(ChatFamily family, std::string_view shown);

}  // namespace coda
