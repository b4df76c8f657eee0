// A random permutation of [0, count) that is computed element by element and never stored.
//
// A Feistel network over 2h bits, the fewest with 4^h >= count, is a bijection of [0, 4^h) whatever its round function
// is. Applying it again until the value falls below count (cycle walking, fewer than 4 times on average) restricts it
// to a bijection of [0, count). The round function is Philox, keyed by (key, stream).
#pragma once

#include <cstdint>

#include "kernels/math/random.h"

namespace coda {

class Permutation {
  public:
    /// 1 <= count <= 2^62.
    Permutation(std::int64_t count, std::uint64_t key, std::uint64_t stream)
        : count_(static_cast<std::uint64_t>(count)), key_(key), stream_(stream) {
        while ((std::uint64_t{1} << (2 * half_bits_)) < count_) ++half_bits_;
    }

    /// Where element `index` goes; 0 <= index < count.
    std::int64_t operator()(std::int64_t index) const {
        auto value = static_cast<std::uint64_t>(index);
        do value = scramble(value);
        while (value >= count_);
        return static_cast<std::int64_t>(value);
    }

  private:
    static constexpr std::uint64_t kRounds = 8;  // 4 suffice for large domains; small ones mix more slowly

    std::uint64_t scramble(std::uint64_t value) const {
        const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
        std::uint64_t left = value >> half_bits_;
        std::uint64_t right = value & mask;
        for (std::uint64_t round = 0; round < kRounds; ++round) {
            const std::uint64_t mixed = left ^ (philox(key_, stream_, round << 32 | right).word[0] & mask);
            left = right;
            right = mixed;
        }
        return left << half_bits_ | right;
    }

    std::uint64_t count_, key_, stream_;
    int half_bits_ = 1;
};

}  // namespace coda
