// The alphabet of byte-level BPE: every byte is written as one printable character, so that a vocabulary is JSON text.
// Printable Latin-1 bytes stand for themselves, the 68 others for U+0100, U+0101, ... in the order of their values.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace coda {

/// The character of every byte.
const std::array<char32_t, 256>& byte_alphabet();

/// The bytes that the characters of `token` stand for; nothing when one of them is not in the alphabet. `token` is
/// valid UTF-8.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace coda
