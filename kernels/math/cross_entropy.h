// The exponentials of cross-entropy and the loss of their sum, shared by CPU and GPU.
//
//   e = 2^(min(log2(e) d, kLimit) - kShift),  d = logit - target's logit;   loss = log Σ e + kShift log 2
//
// The target's own e is 2^-kShift, and the largest e of a row is not below it. kLimit - kShift = 110: the sum of 2^17
// of the largest, 2^127, is a finite fp32 number. Down to 2^-126 an e is a normal number of bf16: where the target is
// the row's maximum, all of p > 2^-68 are there. Up to a distance of kLimit log 2 = 116 the formula is exact; a logit
// that is above its row's target by more, a loss beyond fp32's softmax (p < 2^-149), counts as if by so much.
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/core/dtype.h"

namespace coda::cross_entropy {

inline constexpr int kShift = 58;
inline constexpr int kLimit = 168;

/// log Σ e + kShift log 2. A sum below 1 is scaled first, exactly: for a target that the model is sure of, the result
/// is small and would be lost as a difference.
template <class T>
CODA_HD T loss(T sum) {
    constexpr T kUnshift = T(1ull << kShift);
    return sum < T(1) ? std::log(sum * kUnshift) : std::log(sum) + T(kShift * std::numbers::ln2);
}

/// The loss of a row with Σ e and Σ e d; NaN where one of its logits is not finite, which the limit keeps from Σ e.
template <class T>
CODA_HD T row_loss(T sum, T sum_ed) {
    return loss(sum) + T(0) * sum_ed;
}

}  // namespace coda::cross_entropy
