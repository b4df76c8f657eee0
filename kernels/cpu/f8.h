// FP8 on the CPU: operands of GEMMs as their exact values in fp32, in which the sums are made, and rounding from
// double.
#pragma once

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/core/f8.h"
#include "kernels/cpu/access.h"
#include "kernels/cpu/gemm.h"

namespace coda::cpu {

template <class F8>
F8 round_to_f8(float value) {
    return F8(value);
}
/// Rounded once: the float between is cut towards zero with its last bit set where anything was lost, so that no value
/// next to a midpoint of two codes becomes the midpoint.
template <class F8>
F8 round_to_f8(double value) {
    const auto nearest = static_cast<float>(value);
    if (std::isnan(value) || static_cast<double>(nearest) == value) return F8(nearest);
    auto bits = std::bit_cast<std::uint32_t>(nearest);
    if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
    return F8(std::bit_cast<float>(bits | 1u));
}

/// The values of an FP8 matrix with K in its columns, whose order is kept.
class DecodedMatrix {
  public:
    /// Throws Error where the view is not a (rows, cols) matrix of FP8 in that order.
    DecodedMatrix(const Operands& operands, const Memory& memory, const char* operand, const View& view,
                  ColumnOrder order = ColumnOrder::natural)
        : cols_(view.cols), values_(static_cast<std::size_t>(view.count())) {
        require(is_f8(view.dtype), operands.op(), ": operand ", operand, " is ", name_of(view.dtype),
                ", expected f8e4m3 or f8e5m2");
        require_operand(operands.op(), operand, view, view.rows, view.cols, view.dtype, order);
        with_f8(view.dtype, [&]<class F8>(F8) {
            const F8* from = memory.at<F8>(view);
#pragma omp parallel for
            for (std::int64_t row = 0; row < view.rows; ++row)
                for (std::int64_t col = 0; col < cols_; ++col)
                    values_[static_cast<std::size_t>(row * cols_ + col)] =
                        static_cast<float>(from[row * view.ld + col]);
        });
    }
    GemmOperand<float> operand() const { return {values_.data(), cols_, Major::k}; }

  private:
    std::int64_t cols_;
    std::vector<float> values_;
};

}  // namespace coda::cpu
