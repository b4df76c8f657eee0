// LayerNorm and LayerNormBackward, checked by their formulas in op.h, one thread per element, with means that one
// thread per row sums in double.
#include "kernels/ops/layer_norm/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const LayerNorm& op, OpCheck& check) {
    const Tensor x = live(check, op.x), rstd = live(check, op.rstd), gamma = live(check, op.gamma),
                 beta = live(check, op.beta);
    compare(check, "n", op.n.rows, op.n.cols, live(check, op.n), [=] __device__(std::int64_t row, std::int64_t column) {
        return static_cast<double>(rstd[row]) * x(row, column) * gamma[column] + beta[column];
    });
}

namespace {

struct NormBackward {
    Tensor dn, x, rstd, gamma;
    const float* means;  // of t x̂

    __device__ double x_hat(std::int64_t row, std::int64_t column) const {
        return static_cast<double>(rstd[row]) * x(row, column);
    }
    __device__ double t(std::int64_t row, std::int64_t column) const {
        return static_cast<double>(dn(row, column)) * gamma[column];
    }
    __device__ double dx(std::int64_t row, std::int64_t column) const {
        return rstd[row] * (t(row, column) - x_hat(row, column) * means[row]);
    }
};

/// Compares partials over tiles of `height` of the rows with sums of term(row, column).
template <class Term>
void compare_sums(OpCheck& check, const char* name, const View& partials, std::int64_t rows, std::int64_t height,
                  const Term& term) {
    compare(check, name, partials.rows, partials.cols, live(check, partials),
            [=] __device__(std::int64_t tile, std::int64_t column) {
                double sum = 0;
                for (std::int64_t row = tile * height; row < min((tile + 1) * height, rows); ++row)
                    sum += term(row, column);
                return sum;
            });
}

}  // namespace

template <>
void check_op(const LayerNormBackward& op, OpCheck& check) {
    const std::int64_t rows = op.x.rows, width = op.x.cols;
    Pieces pieces(check.space());
    float* const means = pieces.floats(rows);
    const NormBackward back{live(check, op.dn), live(check, op.x), live(check, op.rstd), live(check, op.gamma), means};
    for_each(check, 1, rows, [=] __device__(std::int64_t, std::int64_t row) {
        double sum = 0;
        for (std::int64_t j = 0; j < width; ++j) sum += back.t(row, j) * back.x_hat(row, j);
        means[row] = static_cast<float>(sum / static_cast<double>(width));
    });
    compare(check, "dx", rows, width, live(check, op.dx),
            [=] __device__(std::int64_t row, std::int64_t column) { return back.dx(row, column); });
    compare_sums(check, "dgamma", op.dgamma, rows, op.tile, [=] __device__(std::int64_t row, std::int64_t column) {
        return static_cast<double>(back.dn(row, column)) * back.x_hat(row, column);
    });
    if (op.dbeta)
        compare_sums(check, "dbeta", op.dbeta, rows, op.tile, [=] __device__(std::int64_t row, std::int64_t column) {
            return static_cast<double>(back.dn(row, column));
        });
    if (op.dx_sum)
        compare_sums(check, "dx_sum", op.dx_sum, rows, op.tile,
                     [=] __device__(std::int64_t row, std::int64_t column) { return back.dx(row, column); });
}

}  // namespace coda::oracle
