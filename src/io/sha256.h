// SHA-256 (FIPS 180-4), which identifies files in logs: sha256sum prints the same digits.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace coda {

/// 64 lowercase hexadecimal digits.
std::string sha256(std::span<const std::byte> bytes);

}  // namespace coda
