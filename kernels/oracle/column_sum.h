// A sum over rows of a GEMM's results, and the size against which its error is measured. Shared by the oracle and its
// tests, host and device.
#pragma once

#include <cmath>

#include "kernels/core/dtype.h"

namespace coda::oracle {

/// Σ_m factor_m acc_m over rows m, with acc_m = Σ_k a_mk w_k.
///
/// Tensor cores cut each product at the last bit of the accumulator to which it is added. The error of acc_m is
/// therefore a share of the sums that it runs through, which are far larger than acc_m where products cancel.
/// terms_m = |a_m| |w| / sqrt(K) is the size of these sums:
///   a_m and w unrelated     terms_m is the RMS of acc_m, and no running sum is much larger.
///   the gradient of logits  a_m sums to 0: the target's element is -s, and the positive others add up to s. What the
///                           elements of w share, as they do where all logits have an offset, cancels: acc_m may be
///                           10^-4 of it. No running sum exceeds s times the shared part, which is at most terms_m, as
///                           |a_m| >= s. On average they reach half of that or less, wherever the target comes. The
///                           average is also half in a sum of terms of one sign, so the share is the same
///                           (tolerance.cpp).
/// The errors of rows add up in one of three ways. The size of the whole sum is the largest of
///   |Σ factor acc|                       errors have the sign of the results,
///   |Σ factor terms|                     errors have the sign of what the elements of w share,
///   sqrt(Σ (factor max(|acc|, terms))²)  errors have signs of their own.
class ColumnSum {
  public:
    CODA_HD void add(double factor, double acc, double terms) {
        const double row = factor * std::fmax(std::fabs(acc), terms);
        value_ += factor * acc;
        along_w_ += factor * terms;
        squares_ += row * row;
    }
    CODA_HD double value() const { return value_; }
    CODA_HD double size() const {
        return std::fmax(std::fmax(std::fabs(value_), std::fabs(along_w_)), std::sqrt(squares_));
    }
    /// The error of a computed sum, relative to the size; 0 if the sum is exact.
    CODA_HD double deviation(double computed) const { return computed == value_ ? 0.0 : (computed - value_) / size(); }

  private:
    double value_ = 0, along_w_ = 0, squares_ = 0;
};

}  // namespace coda::oracle
