// The exponentials of cross-entropy and the loss of their sum, shared by CPU and GPU.
//
//   e = 2^(min(log2(e) d, kLimit) - kShift),  d = logit - target's logit;   loss = log Σ e + kShift log 2
//
// The target's own e is 2^-kShift, and the largest e of a row is not below it. kLimit - kShift = 110, so the sum of
// 2^17 such largest values is 2^127, a finite fp32 number. An e down to 2^-126 is a normal bf16 number: where the
// target is the row's maximum, every p > 2^-68 is represented. The formula is exact up to a distance of
// kLimit log 2 = 116. Rows beyond that, and rows whose target's logit is far from 0, take the second way below.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
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

/// Half of an exponential at the limit. A row in which one reached it has a larger sum, whatever exp rounded.
inline constexpr double kLargestSum = 0x1p109;

/// Largest magnitude of a target's logit t. The target's element of the gradient is rounded, by up to 2^-8 of itself,
/// and a row that therefore does not sum to 0 passes t times the difference on. t is summed apart from the GEMM, whose
/// accumulators tensor cores cut: the two differ by some K 2^-26 t. Up to 2^8 the first is at most 1, and the second
/// at most 2^-5 for a K of 2^13. bf16 logits of that size have a spacing of 1 to 2.
inline constexpr double kFarthestTarget = 256;

/// Whether a row's Σ e, Σ e d and t do not give its loss and gradient: an exponential may have reached the limit, a sum
/// is not finite, or the target's logit is too far from 0. No row of logits that are not finite passes.
CODA_HD bool needs_exact(double sum, double sum_ed, double target_logit) {
    constexpr double kFinite = 0x1p127;
    return !(sum < kLargestSum && std::fabs(sum_ed) < kFinite && std::fabs(target_logit) <= kFarthestTarget);
}

/// The second way: softmax over the row's other columns, q_v = exp(l_v - max) / Σ, and how far they together exceed the
/// target. The gradient p - [target] is scale q_v, and -scale for the target: no element is a difference.
struct ExactRow {
    double loss;
    double scale;  // 1 - p of the target
};

/// From the largest logit of the other columns, Σ exp(l - largest) over them, and the target's logit. Without any other
/// column (largest -inf, sum 0) the loss is 0. NaN stays NaN.
CODA_HD ExactRow exact_row(double largest, double sum, double target_logit) {
    const double excess = largest + std::log(sum) - target_logit;
    const double loss = excess > 0 ? excess + std::log1p(std::exp(-excess)) : std::log1p(std::exp(excess));
    return {loss, 1 / (1 + std::exp(-excess))};
}

/// The bits of one of the two bf16 numbers around q, 0 <= q <= 1. `carry` is what earlier elements of the row lost, and
/// this call adds what this element loses. So a row of gradients sums to 0 much more closely than each element is
/// rounded. Nearest rounding leaves 2^-9 of a row of equal q, the same in all rows that say the same; times a common
/// offset of the logits, that is a gradient of its own. 0 stays 0, and NaN NaN.
CODA_HD std::uint16_t round_carrying(float q, float& carry) {
    if (!(q > 0)) return q == 0 ? 0 : 0x7fff;
    const auto low = std::bit_cast<std::uint32_t>(q) & 0xffff0000u;
    const auto below = std::bit_cast<float>(low), above = std::bit_cast<float>(low + 0x10000u);
    const bool up = (q - below) + carry > (above - below) / 2;
    carry += q - (up ? above : below);
    return static_cast<std::uint16_t>((up ? low + 0x10000u : low) >> 16);
}

}  // namespace coda::cross_entropy
