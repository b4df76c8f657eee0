// How far a right result may be from the oracle's. An op states it for the operands that need more than the rounding of
// their type.
#pragma once

namespace coda {

/// Bounds of an operand's error. `rms` finds what is wrong throughout; `largest` a single element: one that is off by
/// more than that share of the tensor's largest magnitude is found however many elements are right.
struct Tolerance {
    double rms = 0;
    double largest = 0;
};

/// Nothing is computed: a copy, a constant or a flag.
inline constexpr Tolerance kExact{0, 0};

}  // namespace coda
