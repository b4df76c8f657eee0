// UpdateScales and CountF8 on the CPU.
#include <algorithm>
#include <cmath>

#include "kernels/core/f8.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/math/f8_scale.h"
#include "kernels/ops/scales/shape.h"

namespace coda::cpu {

template <>
void execute(const UpdateScales& op, const Memory& memory) {
    dispatch_statistic(op.name, "amax", op.amax, [&]<class Compute>(Compute) {
        require_shape(op);
        const Operands operands(op.name, memory);
        const std::int64_t tensors = op.amax.cols, window = op.window();
        auto* amax = operands.get<Compute>("amax", op.amax, 1, tensors);
        const auto history = rows_of<Compute>(operands, "history", op.history, window, tensors);
        const std::int64_t step = *operands.get<std::int32_t>("step", op.step, 1, 1);
        const bool skip = *operands.get<std::int32_t>("skip", op.skip, 1, 1) != 0;
        auto* scales = operands.get<Compute>("scales", op.scales, 1, tensors);
        const std::int64_t number = std::ssize(op.pairs);
        auto* products = number > 0 ? operands.get<Compute>("products", op.products, 1, number) : nullptr;

        Compute* replaced = history[(step % window + window) % window];
        for (std::int64_t t = 0; t < tensors; ++t) {
            if (!skip && std::isfinite(amax[t])) replaced[t] = amax[t];
            amax[t] = 0;
            Compute largest = 0;
            for (std::int64_t row = 0; row < window; ++row) largest = std::max(largest, history[row][t]);
            scales[t] = std::ldexp(Compute(1), f8_scale_exponent(largest, op.kLargestExponent));
        }
        const auto scale = [&](std::int32_t index) {
            return index == kNormalised ? static_cast<Compute>(kNormalisedScale) : scales[index];
        };
        for (std::int64_t p = 0; p < number; ++p) {
            const auto [left, right] = op.pairs[static_cast<std::size_t>(p)];
            products[p] = 1 / (scale(left) * scale(right));
        }
    });
}

template <>
void execute(const CountF8& op, const Memory& memory) {
    require_shape(op);
    auto* counts = Operands(op.name, memory).get<std::int32_t>("counts", op.counts, 1, 2);
    std::int32_t ends = 0, zeros = 0;
    with_f8(op.codes.dtype, [&]<class F8>(F8) {
        const F8* codes = memory.at<F8>(op.codes);
#pragma omp parallel for reduction(+ : ends, zeros)
        for (std::int64_t row = 0; row < op.codes.rows; row += op.every)
            for (std::int64_t column = 0; column < op.codes.cols; ++column) {
                const int magnitude = codes[row * op.codes.ld + column].bits & 0x7f;
                ends += magnitude >= F8::kLargestCode ? 1 : 0;
                zeros += magnitude == 0 ? 1 : 0;
            }
    });
    counts[0] = ends;
    counts[1] = zeros;
}

}  // namespace coda::cpu
