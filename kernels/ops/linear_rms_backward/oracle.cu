// LinearRmsBackward, checked by its formula in op.h, one thread per element. Its FP8 copies of dx are compared with dx,
// code by code. dgamma's elements are measured against the sizes of their terms, which cancel over a vocabulary.
#include <algorithm>

#include "kernels/math/rms.h"
#include "kernels/ops/linear_rms_backward/op.h"
#include "kernels/oracle/column_sum.h"
#include "kernels/oracle/f8_copies.cuh"
#include "kernels/oracle/term_sizes.cuh"

namespace coda::oracle {

using hopper::Major;

namespace {

/// Compares rows [first, first + rows) of the copies. Returns the largest magnitude of those rows of dx.
double compare_copies(const LinearRmsBackward& op, OpCheck& check, std::int64_t first, std::int64_t rows) {
    const Tensor dx = live(check, op.dx, first), codes = live(check, op.dx_codes.rows, first);
    const Tensor scale = live(check, op.dx_codes.scale);
    compare(check, "dx_f8", rows, op.dx.cols, codes, [=] __device__(std::int64_t row, std::int64_t column) {
        return static_cast<float>(F8E4M3(scale[0] * dx(row, column)));
    });
    compare(check, "dx_f8_t", rows, op.dx.cols, Untransposed{live(check, op.dx_codes.columns), first}, codes);
    return sums_over(check, rows, op.dx.cols, dx, dx).largest_expected;
}

}  // namespace

template <>
void check_op(const LinearRmsBackward& op, OpCheck& check) {
    const std::int64_t columns = op.dx.cols, height = op.tile;
    double largest = 0;
    const TermSizes sizes(check, op.a, op.w, is_f8(op.a.dtype) ? Major::k : Major::mn);
    check.by_rows(
        op.a, Major::k, op.w, Major::mn, op.tile, [&](const float* product, std::int64_t first, std::int64_t rows) {
            const Tensor acc = band_of(product, columns);
            const Tensor x = before(check, "x", op.x, first);
            const bool normed = static_cast<bool>(op.rstd);
            const float* rstds = normed ? check.memory().at<float>(op.rstd) + first : nullptr;
            const float* dot = normed ? check.memory().at<float>(op.dot) + first : nullptr;
            const auto rstd = [=] __device__(std::int64_t row) { return rstds == nullptr ? 1.0f : rstds[row]; };
            const float* factor = check.memory().at<float>(op.alpha);
            const float* scales = op.scale ? check.memory().at<float>(op.scale) + first : nullptr;
            const auto scale = [=] __device__(std::int64_t row) { return scales == nullptr ? 1.0f : scales[row]; };
            const bool f8 = is_f8(op.a.dtype);
            const ScalarFactor undo = scalar_factor(op.w.undo, check);
            const auto factors = [=] __device__(std::int64_t row) {
                const float alpha = factor == nullptr ? 1.0f : *factor;
                const float mean = dot == nullptr ? 0.0f : dot[row] / static_cast<float>(columns);
                if (f8) return rms_backward_row(1.0f, rstd(row), mean, static_cast<float>(undo));
                return scales == nullptr ? rms_backward_row(alpha, rstd(row), mean)
                                         : rms_backward_row(alpha, rstd(row), mean, scales[row]);
            };
            const bool accumulate = op.dx.beta == Beta::accumulate;
            const Tensor old = accumulate ? overwritten(check, "dx", op.dx, first) : Tensor{};
            const auto dx = [=] __device__(std::int64_t row, std::int64_t column) {
                const auto row_of = factors(row);
                return row_of.of_acc * acc(row, column) - row_of.of_x * x(row, column) +
                       (accumulate ? old(row, column) : 0.0f);
            };
            compare(check, "dx", rows, columns, live(check, op.dx, first), dx);
            if (op.dx_sum)
                compare(check, "dx_sum", ceil_div(rows, height), columns, live(check, op.dx_sum, first / height),
                        [=] __device__(std::int64_t tile, std::int64_t column) {
                            double sum = 0;
                            for (std::int64_t row = tile * height; row < min((tile + 1) * height, rows); ++row)
                                sum += dx(row, column);
                            return sum;
                        });
            if (op.dx_codes) largest = std::max(largest, compare_copies(op, check, first, rows));
            if (op.n) {
                // n before the scale, which differs by powers of two from row to row; 0 where the scale is 0.
                const Tensor n = live(check, op.n, first);
                compare(
                    check, "n", rows, columns,
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        return scale(row) == 0 ? n(row, column) : n(row, column) / scale(row);
                    },
                    [=] __device__(std::int64_t row, std::int64_t column) {
                        return scale(row) == 0 ? 0.0f : rstd(row) * x(row, column);
                    });
            }
            if (!op.dgamma) return;
            const Tensor dgamma = live(check, op.dgamma, first / height);
            const TermSizes::Rows terms = sizes.from(first);
            compare_each(check, "dgamma", (rows + height - 1) / height, columns,
                         [=] __device__(std::int64_t tile, std::int64_t column) {
                             ColumnSum sum;
                             for (std::int64_t row = tile * height; row < min((tile + 1) * height, rows); ++row)
                                 sum.add(static_cast<double>(factors(row).of_acc) * x(row, column), acc(row, column),
                                         terms(row, column));
                             return sum.deviation(dgamma(tile, column));
                         });
        });
    if (op.dx_codes) compare_amax(check, "dx_amax", op.dx_codes.amax, largest);
}

}  // namespace coda::oracle
