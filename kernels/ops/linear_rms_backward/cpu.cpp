// LinearRmsBackward on the CPU (K9). Macro-tiles hold whole partial tiles.
#include <algorithm>
#include <cmath>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/f8_copies.h"
#include "kernels/cpu/f8_product.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/math/rms.h"
#include "kernels/ops/linear_rms_backward/copies.h"

namespace coda::cpu {

namespace {

/// K9's epilogue on one row of a macro-tile. Pointers point to the row's first column.
template <class Storage, class Compute>
struct RmsBackwardColumns {
    RmsBackwardRow<Compute> factors;
    const Compute* acc;
    const Storage* x;
    Storage *dx, *n;  // n may be null
    Compute* dgamma;

    template <Beta beta>
    void update(std::int64_t cols) const {
        const RmsBackwardColumns row = *this;  // a local copy, which no store below can change
#pragma omp simd
        for (std::int64_t j = 0; j < cols; ++j) {
            const Compute gradient = row.factors.of_acc * row.acc[j];
            const auto stream = static_cast<Compute>(row.x[j]);
            Compute sum = gradient - row.factors.of_x * stream;
            if constexpr (beta == Beta::accumulate) sum += static_cast<Compute>(row.dx[j]);
            store(row.dx[j], sum);
            row.dgamma[j] += gradient * stream;
        }
        if (row.n == nullptr) return;
#pragma omp simd
        for (std::int64_t j = 0; j < cols; ++j) store(row.n[j], row.factors.of_n * static_cast<Compute>(row.x[j]));
    }
};

/// The FP8 copies of dx, from dx as stored. Does nothing where the op makes none.
class Copies {
  public:
    Copies(const LinearRmsBackward& op, const Memory& memory) : present_(makes_copies(op)) {
        require_copies(op);
        if (!present_) return;
        scale_ = *memory.at<float>(op.dx_scale);
        amax_ = memory.at<float>(op.dx_amax);
        rows_ = {memory.at<F8E4M3>(op.dx_f8), op.dx_f8.ld};
        transposed_ = transposed_copy(op.name, memory, "dx_f8_t", op.dx_f8_t, op.dx.cols, op.dx.rows, op.kF8Multiple);
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
    LargestOfThreads largest_;
};

/// The op with the factors of a row, factors(row, rstd, dot / N). Calls stored(row, first column, number, their dx)
/// when a part of a row of dx has its values.
template <class Storage, class Compute, class Product, class Factors, class Stored>
void finish(const LinearRmsBackward& op, const Operands& operands, const Product& product, const Factors& factors,
            const Stored& stored) {
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    const auto x = rows_of<const Storage>(operands, "x", op.x, product.m, product.n);
    const auto* rstd = operands.get<Compute>("rstd", op.rstd, 1, product.m);
    const auto* dot = operands.get<Compute>("dot", op.dot, 1, product.m);
    const auto dx = rows_of<Storage>(operands, "dx", op.dx, product.m, product.n);
    const auto normalised = optional_rows_of<Storage>(operands, "n", op.n, product.m, product.n);
    const auto dgamma = rows_of<Compute>(operands, "dgamma", op.dgamma, ceil_div(product.m, op.tile), product.n);

    product.template run<Compute>(op.tile, 1, [&](const AccumulatorTile<Compute>& tile) {
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const std::int64_t row = tile.row + i;
            Compute* partial = dgamma[row / op.tile] + tile.col;
            if (row % op.tile == 0) std::fill(partial, partial + tile.cols, Compute(0));
            const Compute mean = dot[row] / static_cast<Compute>(product.n);
            const RmsBackwardColumns<Storage, Compute> columns{
                .factors = factors(row, rstd[row], mean),
                .acc = tile[i],
                .x = x[row] + tile.col,
                .dx = dx[row] + tile.col,
                .n = normalised ? normalised[row] + tile.col : nullptr,
                .dgamma = partial,
            };
            if (op.dx.beta == Beta::accumulate)
                columns.template update<Beta::accumulate>(tile.cols);
            else
                columns.template update<Beta::overwrite>(tile.cols);
            stored(row, tile.col, tile.cols, columns.dx);
        }
    });
}

}  // namespace

template <>
void execute(const LinearRmsBackward& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    if (is_f8(op.a.dtype)) {
        require(!op.alpha && !op.scale && !op.n, op.name, ": with FP8 operands, alpha, scale and n must be absent");
        const float factor = f8_factor(operands, "f8_scale", op.f8_scale);
        Copies copies(op, memory);
        finish<Bf16, float>(
            op, operands, F8Product(operands, memory, op.a, op.w),
            [factor](std::int64_t, float rstd, float mean) { return rms_backward_row(1.0f, rstd, mean, factor); },
            [&copies](std::int64_t row, std::int64_t first, std::int64_t cols, const Bf16* dx) {
                copies.take(row, first, cols, dx);
            });
        return copies.end();
    }
    require_copies(op);
    require_no_f8_factor(op.name, "f8_scale", op.f8_scale, op.a);
    require(op.promotion == 0, op.name, ": promotion goes with FP8 operands, and a is ", name_of(op.a.dtype));
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const LinearProduct<Storage> product(operands, op.a, op.w, op.layout);
        const auto alpha = scalar_or_one<Compute>(operands, "alpha", op.alpha);
        const auto* scale = operands.get_optional<Compute>("scale", op.scale, 1, product.m);
        finish<Storage, Compute>(
            op, operands, product,
            [&](std::int64_t row, Compute rstd, Compute mean) {
                return scale ? rms_backward_row(alpha, rstd, mean, scale[row]) : rms_backward_row(alpha, rstd, mean);
            },
            [](std::int64_t, std::int64_t, std::int64_t, const Storage*) {});
    });
}

}  // namespace coda::cpu
