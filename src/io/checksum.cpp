#include "src/io/checksum.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

namespace coda {
namespace {

constexpr std::uint64_t kPrime1 = 0x9e3779b185ebca87;
constexpr std::uint64_t kPrime2 = 0xc2b2ae3d27d4eb4f;
constexpr std::uint64_t kPrime3 = 0x165667b19e3779f9;
constexpr std::uint64_t kPrime4 = 0x85ebca77c2b2ae63;
constexpr std::uint64_t kPrime5 = 0x27d4eb2f165667c5;

static_assert(std::endian::native == std::endian::little, "XXH64 reads its input as little-endian words");

template <class Word>
std::uint64_t word_at(const std::byte* data) {
    Word word;
    std::memcpy(&word, data, sizeof(Word));
    return word;
}

constexpr std::uint64_t mix(std::uint64_t lane, std::uint64_t word) {
    return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

}  // namespace

void Xxh64::consume(const std::byte* stripe) {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
        lanes_[lane] = mix(lanes_[lane], word_at<std::uint64_t>(stripe + 8 * lane));
}

void Xxh64::update(std::span<const std::byte> bytes) {
    const std::size_t held = total_ % kStripe;
    total_ += bytes.size();
    if (held + bytes.size() < kStripe) {
        std::copy(bytes.begin(), bytes.end(), pending_.begin() + static_cast<std::ptrdiff_t>(held));
        return;
    }
    if (held > 0) {
        const auto missing = bytes.first(kStripe - held);
        std::copy(missing.begin(), missing.end(), pending_.begin() + static_cast<std::ptrdiff_t>(held));
        consume(pending_.data());
        bytes = bytes.subspan(missing.size());
    }
    for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) consume(bytes.data());
    std::copy(bytes.begin(), bytes.end(), pending_.begin());
}

std::uint64_t Xxh64::digest() const {
    std::uint64_t hash = kPrime5;
    if (total_ >= kStripe) {
        hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
        for (const std::uint64_t lane : lanes_) hash = (hash ^ mix(0, lane)) * kPrime1 + kPrime4;
    }
    hash += total_;

    const std::byte* data = pending_.data();
    const std::byte* const end = data + total_ % kStripe;
    for (; end - data >= 8; data += 8)
        hash = std::rotl(hash ^ mix(0, word_at<std::uint64_t>(data)), 27) * kPrime1 + kPrime4;
    for (; end - data >= 4; data += 4)
        hash = std::rotl(hash ^ (word_at<std::uint32_t>(data) * kPrime1), 23) * kPrime2 + kPrime3;
    for (; data < end; ++data) hash = std::rotl(hash ^ (word_at<std::uint8_t>(data) * kPrime5), 11) * kPrime1;

    hash = (hash ^ (hash >> 33)) * kPrime2;
    hash = (hash ^ (hash >> 29)) * kPrime3;
    return hash ^ (hash >> 32);
}

std::string hex(std::uint64_t value) {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(value));
    return digits;
}

}  // namespace coda
