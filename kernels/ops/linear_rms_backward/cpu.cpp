// LinearRmsBackward on the CPU (K9). Macro-tiles hold whole partial tiles.
#include <algorithm>
#include <cmath>

#include "kernels/core/f8.h"
#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/largest.h"
#include "kernels/cpu/product.h"
#include "kernels/math/rms.h"
#include "kernels/ops/linear_rms_backward/op.h"

namespace coda::cpu {

namespace {

/// K9's epilogue on one row of a macro-tile. Pointers point to the row's first column.
template <class Storage, class Compute>
struct RmsBackwardColumns {
    RmsBackwardRow<Compute> factors;
    const Compute* acc;
    const Storage* x;
    Storage *dx, *n;           // n may be null
    Compute *dgamma, *dx_sum;  // may be null

    template <Beta beta>
    void update(std::int64_t cols) const {
        const RmsBackwardColumns row = *this;  // a local copy, which no store below can change
        if (row.dx_sum != nullptr) {           // a separate loop, so that the one below keeps its bits
            for (std::int64_t j = 0; j < cols; ++j) row.dx_sum[j] += row.template new_dx<beta>(j);
        }
#pragma omp simd
        for (std::int64_t j = 0; j < cols; ++j) {
            const Compute gradient = row.factors.of_acc * row.acc[j];
            const auto stream = static_cast<Compute>(row.x[j]);
            Compute sum = gradient - row.factors.of_x * stream;
            if constexpr (beta == Beta::accumulate) sum += static_cast<Compute>(row.dx[j]);
            store(row.dx[j], sum);
            if (row.dgamma != nullptr) row.dgamma[j] += gradient * stream;
        }
        if (row.n == nullptr) return;
#pragma omp simd
        for (std::int64_t j = 0; j < cols; ++j) store(row.n[j], row.factors.of_n * static_cast<Compute>(row.x[j]));
    }

    /// dx of column j before rounding.
    template <Beta beta>
    Compute new_dx(std::int64_t j) const {
        const Compute sum = factors.of_acc * acc[j] - factors.of_x * static_cast<Compute>(x[j]);
        return beta == Beta::accumulate ? sum + static_cast<Compute>(dx[j]) : sum;
    }
};

/// dx rounded to FP8, from dx as stored. Does nothing where the op does not ask for it.
class RoundedDx {
  public:
    RoundedDx(const LinearRmsBackward& op, const Memory& memory) : present_(op.dx_codes) {
        if (!present_) return;
        require_rounded(op.name, op.dx_names, op.dx_codes, op.dx.rows, op.dx.cols, true, kF8Multiple);
        scale_ = *memory.at<float>(op.dx_codes.scale);
        amax_ = memory.at<float>(op.dx_codes.amax);
        rows_ = {memory.at<F8E4M3>(op.dx_codes.rows), op.dx_codes.rows.ld};
        transposed_ = {memory.at<F8E4M3>(op.dx_codes.columns), op.dx_codes.columns.ld};
    }
    void take(std::int64_t row, std::int64_t first_column, std::int64_t cols, const Bf16* dx) {
        if (!present_) return;
        for (std::int64_t j = 0; j < cols; ++j) {
            const auto value = static_cast<float>(dx[j]);
            largest_.add(value);
            rows_[row][first_column + j] = F8E4M3(scale_ * value);
            transposed_[first_column + j][paired_place(row)] = rows_[row][first_column + j];
        }
    }
    void end() const {
        if (present_) *amax_ = std::fmax(*amax_, largest_.of_all());
    }

  private:
    bool present_;
    float scale_ = 1;
    float* amax_ = nullptr;
    Rows<F8E4M3> rows_, transposed_;
    LargestOfThreads<> largest_;
};

/// The op with the factors of a row, factors(row, rstd, dot / N). Calls stored(row, first column, number, their dx)
/// when a part of a row of dx has its values.
template <class Storage, class Compute, class Product, class Factors, class Stored>
void finish(const LinearRmsBackward& op, const Operands& operands, const Product& product, const Factors& factors,
            const Stored& stored) {
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    const auto x = rows_of<const Storage>(operands, "x", op.x, product.m, product.n);
    const auto* rstd = operands.get_optional<Compute>("rstd", op.rstd, 1, product.m);
    const auto* dot = rstd ? operands.get<Compute>("dot", op.dot, 1, product.m) : nullptr;
    const auto dx = rows_of<Storage>(operands, "dx", op.dx, product.m, product.n);
    const auto normalised = optional_rows_of<Storage>(operands, "n", op.n, product.m, product.n);
    const std::int64_t tiles = ceil_div(product.m, op.tile);
    const auto dgamma = optional_rows_of<Compute>(operands, "dgamma", op.dgamma, tiles, product.n);
    require(static_cast<bool>(op.dgamma) == (rstd != nullptr), op.name, ": dgamma goes with rstd");
    const auto dx_sum = optional_rows_of<Compute>(operands, "dx_sum", op.dx_sum, tiles, product.n);

    product.template run<Compute>(op.tile, 1, [&](const AccumulatorTile<Compute>& tile) {
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const std::int64_t row = tile.row + i;
            Compute* partial = dgamma ? dgamma[row / op.tile] + tile.col : nullptr;
            Compute* sum = dx_sum ? dx_sum[row / op.tile] + tile.col : nullptr;
            if (row % op.tile == 0) {
                if (partial) std::fill_n(partial, tile.cols, Compute(0));
                if (sum) std::fill_n(sum, tile.cols, Compute(0));
            }
            const Compute mean = dot ? dot[row] / static_cast<Compute>(product.n) : Compute(0);
            const RmsBackwardColumns<Storage, Compute> columns{
                .factors = factors(row, rstd ? rstd[row] : Compute(1), mean),
                .acc = tile[i],
                .x = x[row] + tile.col,
                .dx = dx[row] + tile.col,
                .n = normalised ? normalised[row] + tile.col : nullptr,
                .dgamma = partial,
                .dx_sum = sum,
            };
            if (op.dx.beta == Beta::accumulate)
                columns.template update<Beta::accumulate>(tile.cols);
            else
                columns.template update<Beta::overwrite>(tile.cols);
            stored(row, tile.col, tile.cols, columns.dx);
        }
    });
}

/// The factors of a row of storage, factors(row, rstd, dot / N).
template <class Compute>
auto factors_of(const LinearRmsBackward& op, const Operands& operands, std::int64_t m, NoFactor) {
    const auto alpha = scalar_or_one<Compute>(operands, "alpha", op.alpha);
    const auto* scale = operands.get_optional<Compute>("scale", op.scale, 1, m);
    return [alpha, scale](std::int64_t row, Compute rstd, Compute mean) {
        return scale ? rms_backward_row(alpha, rstd, mean, scale[row]) : rms_backward_row(alpha, rstd, mean);
    };
}
/// The same of codes.
template <class Compute>
auto factors_of(const LinearRmsBackward&, const Operands&, std::int64_t, float undo) {
    return [undo](std::int64_t, float rstd, float mean) { return rms_backward_row(1.0f, rstd, mean, undo); };
}

}  // namespace

template <>
void execute(const LinearRmsBackward& op, const Memory& memory) {
    RoundedDx rounded(op, memory);
    with_product(op, memory,
                 [&]<class Storage, class Compute>(Types<Storage, Compute>, const auto& operands, const auto& product,
                                                   auto undo) {
                     finish<Storage, Compute>(
                         op, operands, product, factors_of<Compute>(op, operands, product.m, undo),
                         [&](std::int64_t row, std::int64_t first, std::int64_t cols, const Storage* dx) {
                             if constexpr (std::is_same_v<Storage, Bf16>) rounded.take(row, first, cols, dx);
                         });
                 });
    rounded.end();
}

}  // namespace coda::cpu
