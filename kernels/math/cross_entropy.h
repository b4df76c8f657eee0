// The exponentials of cross-entropy and the loss of their sum, shared by CPU and GPU.
//
//   e = 2^(min(log2(e) d, kLimit) - kShift),  d = logit - target's logit;   loss = log Σ e + kShift log 2
//
// The target's own e is 2^-kShift, and the largest e of a row is not below it. kLimit - kShift = 110, so the sum of
// 2^17 such largest values is 2^127, a finite fp32 number. An e down to 2^-126 is a normal bf16 number: where the
// target is the row's maximum, every p > 2^-68 is represented. The formula is exact up to a distance of
// kLimit log 2 = 116. A logit that exceeds its row's target by more counts as if it exceeded it by 116; such a loss
// (p < 2^-149) is beyond fp32's softmax too.
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/core/dtype.h"

namespace coda::cross_entropy {

inline constexpr int kShift = 58;
inline constexpr int kLimit = 168;

/// log Σ e + kShift log 2. A sum below 1 is first scaled, exactly: where the model is sure of the target, the result is
/// small, and a difference of two logarithms would lose it.
template <class T>
CODA_HD T loss(T sum) {
    constexpr T kUnshift = T(1ull << kShift);
    return sum < T(1) ? std::log(sum * kUnshift) : std::log(sum) + T(kShift * std::numbers::ln2);
}

/// The loss of a row from Σ e and Σ e d. NaN where one of its logits is not finite: Σ e d shows that, while in Σ e the
/// limit hides it.
template <class T>
CODA_HD T row_loss(T sum, T sum_ed) {
    return loss(sum) + T(0) * sum_ed;
}

}  // namespace coda::cross_entropy
