// XXH64, the 64-bit xxHash: a checksum against torn and corrupted files (not against forgery), as fast as memory is
// read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace coda {

/// The hash of all bytes given to update(), however they are divided into parts. Seed 0.
class Xxh64 {
  public:
    void update(std::span<const std::byte> bytes);
    std::uint64_t digest() const;

  private:
    static constexpr std::size_t kStripe = 32;

    void consume(const std::byte* stripe);

    std::array<std::uint64_t, 4> lanes_ = {0x60ea27eeadc0b5d6, 0xc2b2ae3d27d4eb4f, 0, 0x61c8864e7a143579};
    std::array<std::byte, kStripe> pending_{};
    std::uint64_t total_ = 0;  // bytes; the last total_ % kStripe of them are pending
};

inline std::uint64_t xxh64(std::span<const std::byte> bytes) {
    Xxh64 hash;
    hash.update(bytes);
    return hash.digest();
}

/// 16 digits.
std::string hex(std::uint64_t value);

}  // namespace coda
