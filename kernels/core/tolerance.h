// How far a correct result may be from the oracle's. An op states it for operands that need more than the rounding of
// their type.
#pragma once

namespace coda {

/// Bounds of an operand's error. `rms` finds errors that are everywhere. `largest` finds a single wrong element among
/// any number of right ones: one that is off by more than this share of the tensor's largest magnitude.
struct Tolerance {
    double rms = 0;
    double largest = 0;
};

/// Nothing is computed: a copy, a constant or a flag.
inline constexpr Tolerance kExact{0, 0};

}  // namespace coda
