// Position in a ring of barriers: index and the parity of the current round.
#pragma once

#include <cstdint>

namespace coda::hopper {

template <int kLength>
struct Ring {
    int index = 0;
    std::uint32_t parity = 0;

    __device__ __forceinline__ void advance() {
        if (++index == kLength) {
            index = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void advance(int steps) {
        const int position = index + steps;
        parity ^= position / kLength & 1;
        index = position % kLength;
    }
};

}  // namespace coda::hopper
