// ExactCrossEntropy, checked by its formulas in op.h, in double: one thread per logit, then one per row for the row's
// softmax. No tensor cores and no cuBLAS: their sums could not judge logits in the thousands.
#include <cmath>
#include <vector>

#include "kernels/ops/cross_entropy/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

namespace {

/// A flagged row in double.
struct Expected {
    double largest, sum;  // over the columns but the target's: the largest logit, Σ exp(l - largest)
    double target;        // the target's logit
    double loss, scale;

    /// What an error of 2^-22 of the logits makes of a result, in units of the tolerance, 1e-4.
    __device__ double sway() const { return 0x1p-8 * (fabs(largest) + fabs(target)); }
};

/// Exponentials below 2^-126 may be 0.
constexpr double kSmallExponential = 0x1p-118;

__device__ double deviation(double found, double expected, double size) {
    return isnan(found) && isnan(expected) ? 0 : (found - expected) / size;
}

std::vector<std::int32_t> flagged_rows(const ExactCrossEntropy& op, const OpCheck& check) {
    const auto rows = static_cast<std::size_t>(op.a.rows);
    const auto download = [&](const View& view) {
        std::vector<std::int32_t> host(rows);
        CUDA_CHECK(cudaMemcpyAsync(host.data(), check.memory().address(view), 4 * rows, cudaMemcpyDeviceToHost,
                                   check.stream()));
        CUDA_CHECK(cudaStreamSynchronize(check.stream()));
        return host;
    };
    const std::vector<std::int32_t> flags = download(op.flags), targets = download(op.targets);
    std::vector<std::int32_t> list;
    for (std::size_t row = 0; row < rows; ++row)
        if (flags[row] != 0 && targets[row] >= 0) list.push_back(static_cast<std::int32_t>(row));
    return list;
}

/// Rows that are not flagged must hold what they held. Where they do, they do not count: many right rows would make a
/// wrong one small.
void check_the_rest(const ExactCrossEntropy& op, OpCheck& check, bool none_flagged) {
    const std::int32_t *flags = check.memory().at<std::int32_t>(op.flags),
                       *targets = check.memory().at<std::int32_t>(op.targets);
    const auto unchanged = [&](const char* operand, const View& view) {
        const Tensor found = live(check, view), old = overwritten(check, operand, view, 0);
        const bool matrix = view.dtype == DType::bf16;
        const auto one_where_same = [=] __device__(std::int64_t row, std::int64_t column) {
            const std::int64_t m = matrix ? row : column;
            const float now = found(row, column), then = old(row, column);
            const bool replaced = flags[m] != 0 && targets[m] >= 0;
            return replaced || now == then || (isnan(now) && isnan(then)) ? 1.0 : 0.0;
        };
        const Sums total = sums_over(check, view.rows, view.cols, one_where_same, One{});
        if (none_flagged || total.difference > 0)
            check.add(operand, {total.difference, total.expected, total.largest_difference, total.largest_expected});
    };
    unchanged("loss", op.loss);
    if (!op.exponentials) return;
    unchanged("exponentials", op.exponentials);
    unchanged("scale", op.scale);
    unchanged("dot", op.dot);
}

/// A band of the flagged rows: their logits (rows, vocab), and what follows from them.
struct BandOfRows {
    const std::int32_t* list;
    double* logits;
    Expected* expected;
    std::int64_t rows, vocab;
};

void compute(const ExactCrossEntropy& op, const OpCheck& check, const BandOfRows& band) {
    const Tensor a = live(check, op.a), table = live(check, op.table);
    const RowFactor factor = row_factor(op.rstd, check, 0);
    const std::int32_t* targets = check.memory().at<std::int32_t>(op.targets);
    const std::int64_t width = op.a.cols;
    for_each(check, band.rows, band.vocab, [=] __device__(std::int64_t i, std::int64_t v) {
        double sum = 0;
        for (std::int64_t k = 0; k < width; ++k)
            sum += static_cast<double>(a(band.list[i], k)) * static_cast<double>(table(v, k));
        band.logits[i * band.vocab + v] = sum * static_cast<double>(factor[band.list[i]]);
    });
    for_each(check, band.rows, 1, [=] __device__(std::int64_t i, std::int64_t) {
        const double* logits = band.logits + i * band.vocab;
        const std::int32_t target = targets[band.list[i]];
        Expected row{-INFINITY, 0, logits[target], 0, 0};
        bool finite = true;
        for (std::int64_t v = 0; v < band.vocab; ++v) {
            finite = finite && fabs(logits[v]) <= 3.4028234e38;
            if (v != target) row.largest = fmax(row.largest, logits[v]);
        }
        for (std::int64_t v = 0; v < band.vocab; ++v)
            if (v != target) row.sum += exp(logits[v] - row.largest);
        if (!finite) row.sum = NAN;
        const double excess = row.largest + log(row.sum) - row.target;
        row.loss = excess > 0 ? excess + log1p(exp(-excess)) : log1p(exp(excess));
        row.scale = 1 / (1 + exp(-excess));
        band.expected[i] = row;
    });
}

void compare_band(const ExactCrossEntropy& op, OpCheck& check, const BandOfRows& band) {
    const std::int32_t* targets = check.memory().at<std::int32_t>(op.targets);
    const Tensor loss = live(check, op.loss);
    compare_each(check, "loss", 1, band.rows, [=] __device__(std::int64_t, std::int64_t i) {
        const Expected row = band.expected[i];
        return deviation(static_cast<double>(loss[band.list[i]]), row.loss, row.loss + row.sway() + 1e-30);
    });
    if (!op.exponentials) return;
    const Tensor found = live(check, op.exponentials), scale = live(check, op.scale), dot = live(check, op.dot);
    compare_each(check, "exponentials", band.rows, op.exponentials.cols,
                 [=] __device__(std::int64_t i, std::int64_t column) {
                     const Expected row = band.expected[i];
                     const auto value = static_cast<double>(found(band.list[i], column));
                     if (column >= band.vocab) return value;
                     if (column == targets[band.list[i]]) return deviation(value, isnan(row.sum) ? NAN : -1.0, 1);
                     const double logit = band.logits[i * band.vocab + column];
                     const double q = exp(logit - row.largest) / row.sum;
                     return deviation(value, q, fmax(q, kSmallExponential) * (1 + 0x1p-12 * fabs(logit)));
                 });
    compare_each(check, "scale", 1, band.rows, [=] __device__(std::int64_t, std::int64_t i) {
        const Expected row = band.expected[i];
        return deviation(static_cast<double>(scale[band.list[i]]), row.scale, row.scale * (1 + row.sway()) + 1e-30);
    });
    compare_each(check, "dot", 1, band.rows, [=] __device__(std::int64_t, std::int64_t i) {
        const Expected row = band.expected[i];
        double sum = 0, size = row.sway();
        for (std::int64_t v = 0; v < band.vocab; ++v) {
            const auto g = static_cast<double>(found(band.list[i], v));
            if (g == 0) continue;
            const double term = g * band.logits[i * band.vocab + v];
            sum += term;
            size += fabs(g * (band.logits[i * band.vocab + v] - row.target));
        }
        return deviation(static_cast<double>(dot[band.list[i]]), row.scale * sum, row.scale * size + 1e-30);
    });
}

}  // namespace

template <>
void check_op(const ExactCrossEntropy& op, OpCheck& check) {
    const std::vector<std::int32_t> list = flagged_rows(op, check);
    check_the_rest(op, check, list.empty());
    const std::int64_t vocab = op.table.rows, doubles = 2;  // floats in a double
    const std::int64_t per_row = size_of(DType::f64) * vocab + static_cast<std::int64_t>(sizeof(Expected)) + 4;
    for (const auto [first, rows] :
         bands(static_cast<std::int64_t>(list.size()), per_row, 1, check.space().bytes() - 3 * Pieces::kAlignment)) {
        Pieces pieces(check.space());
        auto* device_list = reinterpret_cast<std::int32_t*>(pieces.floats(rows));
        auto* logits = reinterpret_cast<double*>(pieces.floats(doubles * rows * vocab));
        auto* expected = reinterpret_cast<Expected*>(
            pieces.floats(rows * static_cast<std::int64_t>(sizeof(Expected)) / size_of(DType::f32)));
        CUDA_CHECK(cudaMemcpyAsync(device_list, list.data() + first, 4 * static_cast<std::size_t>(rows),
                                   cudaMemcpyHostToDevice, check.stream()));
        const BandOfRows band{device_list, logits, expected, rows, vocab};
        compute(op, check, band);
        compare_band(op, check, band);
    }
}

}  // namespace coda::oracle
