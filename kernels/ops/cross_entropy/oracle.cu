// TargetLogit and LinearCrossEntropy, checked by their formulas in op.h, one thread per element.
#include <cmath>
#include <numbers>

#include "kernels/math/cross_entropy.h"
#include "kernels/ops/cross_entropy/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

using hopper::Major;

namespace {

/// The exponential of a logit that is `distance` above its row's target.
__device__ double exponential(double distance) {
    return exp2(fmin(distance * std::numbers::log2e, static_cast<double>(cross_entropy::kLimit)) -
                cross_entropy::kShift);
}
__device__ double stored(double value) {
    return static_cast<double>(__bfloat162float(__float2bfloat16_rn(static_cast<float>(value))));
}

/// Exponentials below 2^-126 may be 0. So exponentials are measured against at least 2^8 times that, and sums against
/// at least the sum of 128 of these, times distances of up to 2^6.
constexpr double kSmallExponential = 0x1p-118, kSmallSum = 0x1p-104;

/// Σ e and Σ e d of one tile, and the sizes against which they are measured.
struct TileSums {
    double value[2] = {0, 0};
    double size[2] = {0, 0};
};

}  // namespace

template <>
void check_op(const TargetLogit& op, OpCheck& check) {
    const Tensor a = live(check, op.a), table = live(check, op.table), rstd = live(check, op.rstd);
    const std::int32_t* targets = check.memory().at<std::int32_t>(op.targets);
    const std::int64_t width = op.a.cols;
    compare(check, "target_logit", 1, op.a.rows, live(check, op.target_logit),
            [=] __device__(std::int64_t, std::int64_t row) {
                double sum = 0;
                if (targets[row] < 0) return sum;
                for (std::int64_t k = 0; k < width; ++k)
                    sum += static_cast<double>(a(row, k)) * static_cast<double>(table(targets[row], k));
                return rstd.data == nullptr ? sum : sum * static_cast<double>(rstd[row]);
            });
}

template <>
void check_op(const LinearCrossEntropy& op, OpCheck& check) {
    const std::int64_t columns = op.w.rows, vocab = op.vocab, width = op.tile, tiles = op.sums.rows;
    check.by_rows(op.a, Major::k, op.w, Major::k, 1, [&](const float* product, std::int64_t first, std::int64_t rows) {
        const Tensor acc = band_of(product, columns);
        const RowFactor factor = row_factor(op.rstd, check, first);
        const float* target_logit = check.memory().at<float>(op.target_logit) + first;
        const auto logit = [=] __device__(std::int64_t row, std::int64_t column) {
            return static_cast<double>(acc(row, column)) * static_cast<double>(factor[row]);
        };
        const auto distance = [=] __device__(std::int64_t row, std::int64_t column) {
            return logit(row, column) - static_cast<double>(target_logit[row]);
        };
        if (op.exponentials) {
            const Tensor found = live(check, op.exponentials, first);
            compare_each(check, "exponentials", rows, columns, [=] __device__(std::int64_t row, std::int64_t column) {
                const double expected = column < vocab ? exponential(distance(row, column)) : 0.0;
                return (static_cast<double>(found(row, column)) - expected) / fmax(expected, kSmallExponential);
            });
        }
        Tensor pairs = live(check, op.sums);
        pairs.data = static_cast<const float*>(pairs.data) + 2 * first;
        compare_each(check, "sums", tiles, 2 * rows, [=] __device__(std::int64_t tile, std::int64_t i) {
            TileSums sums;
            for (std::int64_t j = tile * width; j < min((tile + 1) * width, vocab); ++j) {
                // The sums are of exponentials as stored.
                const double d = distance(i / 2, j), e = stored(exponential(d));
                sums.value[0] += e;
                sums.value[1] += e * d;
                sums.size[0] += e;
                sums.size[1] += e * (1 + fabs(d));
            }
            const auto found = static_cast<double>(pairs(tile, i));
            // A sum beyond fp32 is infinite, and its row flagged (FinishCrossEntropy).
            if (isinf(found) && isinf(static_cast<float>(sums.value[i % 2]))) return 0.0;
            return (found - sums.value[i % 2]) / fmax(sums.size[i % 2], kSmallSum);
        });
    });
}

}  // namespace coda::oracle
