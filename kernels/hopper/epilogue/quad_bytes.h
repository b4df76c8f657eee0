// How a quad transposes its bytes: lane q has bytes 0 to 3 of a word, and gets byte q of the words of lanes 0 to 3.
// Host and device.
//
// Two steps, with the lane 2 away and with the lane 1 away. In each a lane gives away half of its word, so that one
// shuffle serves two words, and merges what it receives. All are selectors of __byte_perm.
#pragma once

#include "kernels/core/dtype.h"

namespace coda::hopper {

/// The step with the lane `distance` (2 or 1) away.
template <int distance>
struct QuadByteStep {
    static_assert(distance == 2 || distance == 1);
    bool upper;  // of the two lanes

    CODA_HD constexpr explicit QuadByteStep(int quad) : upper((quad & distance) != 0) {}

    /// What the lane gives away, selected from (first word, second word).
    CODA_HD constexpr unsigned given() const {
        if (distance == 2) return upper ? 0x5410 : 0x7632;
        return upper ? 0x6420 : 0x7531;
    }
    /// The first word afterwards, and the second, selected from (word, received).
    CODA_HD constexpr unsigned first() const {
        if (distance == 2) return upper ? 0x3254 : 0x5410;
        return upper ? 0x3514 : 0x5240;
    }
    CODA_HD constexpr unsigned second() const {
        if (distance == 2) return upper ? 0x3276 : 0x7610;
        return upper ? 0x3716 : 0x7260;
    }
};

}  // namespace coda::hopper
