// UpdateScales and CountF8, checked by their formulas in op.h.
#include <cmath>

#include "kernels/core/f8.h"
#include "kernels/ops/scales/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

namespace {

/// The scale of tensor t, found by trying every power of two.
struct ScaleOf {
    Tensor old, amax;  // history and amax from before the launch
    const std::int32_t *step, *skip;
    std::int64_t window;

    __device__ double history(std::int64_t row, std::int64_t t) const {
        const bool replaced = (*step % window + window) % window == row && *skip == 0 && isfinite(amax[t]);
        return replaced ? amax[t] : old(row, t);
    }
    __device__ double operator()(std::int64_t t) const {
        double largest = 0, scale = exp2(static_cast<double>(UpdateScales::kLargestExponent));
        const double least = 1 / scale;
        for (std::int64_t row = 0; row < window; ++row) largest = fmax(largest, history(row, t));
        if (largest == 0) return 1;
        while (scale > least && scale * largest > 448) scale /= 2;
        return scale;
    }
};

}  // namespace

template <>
void check_op(const UpdateScales& op, OpCheck& check) {
    const std::int64_t tensors = op.amax.cols;
    const ScaleOf scale_of{overwritten(check, "history", op.history, 0), overwritten(check, "amax", op.amax, 0),
                           check.memory().at<std::int32_t>(op.step), check.memory().at<std::int32_t>(op.skip),
                           op.window()};
    compare(check, "amax", 1, tensors, live(check, op.amax),
            [=] __device__(std::int64_t, std::int64_t) { return 0.0; });
    compare(check, "history", op.window(), tensors, live(check, op.history),
            [=] __device__(std::int64_t row, std::int64_t t) { return scale_of.history(row, t); });
    compare(check, "scales", 1, tensors, live(check, op.scales),
            [=] __device__(std::int64_t, std::int64_t t) { return scale_of(t); });
    // Pairs are the host's: a launch for each.
    for (std::int64_t p = 0; p < std::ssize(op.pairs); ++p) {
        const auto [left, right] = op.pairs[static_cast<std::size_t>(p)];
        const Tensor products = live(check, op.products);
        compare(
            check, "products", 1, 1, [=] __device__(std::int64_t, std::int64_t) { return products[p]; },
            [=] __device__(std::int64_t, std::int64_t) {
                const double of_left = left == kNormalised ? kNormalisedScale : scale_of(left);
                const double of_right = right == kNormalised ? kNormalisedScale : scale_of(right);
                return 1 / (of_left * of_right);
            });
    }
}

template <>
void check_op(const CountF8& op, OpCheck& check) {
    const Tensor codes = live(check, op.codes);
    const std::int64_t every = op.every;
    const float largest = with_f8(op.codes.dtype, [](auto f8) { return decltype(f8)::largest(); });
    // Sums of squares of ones: the counts, exactly.
    const auto end = [=] __device__(std::int64_t row, std::int64_t column) {
        return fabsf(codes(row * every, column)) < largest ? 0.0 : 1.0;
    };
    const auto zero = [=] __device__(std::int64_t row, std::int64_t column) {
        return codes(row * every, column) == 0 ? 1.0 : 0.0;
    };
    const double ends = sums_over(check, op.counted_rows(), op.codes.cols, end, end).expected;
    const double zeros = sums_over(check, op.counted_rows(), op.codes.cols, zero, zero).expected;
    const std::int32_t* counts = check.memory().at<std::int32_t>(op.counts);
    compare(
        check, "counts", 1, 2, [=] __device__(std::int64_t, std::int64_t i) { return counts[i]; },
        [=] __device__(std::int64_t, std::int64_t i) { return i == 0 ? ends : zeros; });
}

}  // namespace coda::oracle
