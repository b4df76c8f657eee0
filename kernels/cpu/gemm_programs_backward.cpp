// The backward GEMM programs: acc = a w with w (K, N), and the epilogues of RMSNorm (K9), SwiGLU (K10) and attention's
// delta. The formulas are those of ops.h.
#include <algorithm>

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/cpu/operations.h"
#include "kernels/math/rms.h"
#include "kernels/math/swiglu.h"
#include "kernels/tiling.h"

namespace coda::cpu {

namespace {

/// K9's epilogue on one row of a macro-tile; pointers are to its first column.
template <class Storage, class Compute>
struct RmsBackwardColumns {
    RmsBackwardRow<Compute> factors;
    const Compute* acc;
    const Storage* x;
    Storage *dx, *n;  // n may be null
    Compute* dgamma;

    template <Beta beta>
    void update(std::int64_t cols) const {
        const RmsBackwardColumns row = *this;  // values of its own: no store below can change them
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

}  // namespace

void execute(const LinearRmsBackward& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::in_out);
        require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
        const auto x = rows_of<const Storage>(operands, "x", op.x, product.m, product.n);
        const auto* rstd = operands.get<Compute>("rstd", op.rstd, 1, product.m);
        const auto* dot = operands.get<Compute>("dot", op.dot, 1, product.m);
        const auto alpha = scalar_or_one<Compute>(operands, "alpha", op.alpha);
        const auto* scale = operands.get_optional<Compute>("scale", op.scale, 1, product.m);
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
                    .factors = scale ? rms_backward_row(alpha, rstd[row], mean, scale[row])
                                     : rms_backward_row(alpha, rstd[row], mean),
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
            }
        });
    });
}

void execute(const LinearSwigluBackward& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::in_out);
        require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
        const auto z = rows_of<const Storage>(operands, "z", op.z, product.m, 2 * product.n);
        const auto dz = rows_of<Storage>(operands, "dz", op.dz, product.m, 2 * product.n);
        const auto y = optional_rows_of<Storage>(operands, "y", op.y, product.m, product.n);
        const auto* rstd = operands.get_optional<Compute>("rstd", op.rstd, 1, product.m);
        const auto dot = rows_of<Compute>(operands, "dot", op.dot, ceil_div(product.n, op.tile), product.m);

        product.template run<Compute>(1, op.tile, [&](const AccumulatorTile<Compute>& tile) {
            for (std::int64_t i = 0; i < tile.rows; ++i) {
                const std::int64_t row = tile.row + i;
                const Compute factor = rstd ? rstd[row] : Compute(1);
                for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                    const std::int64_t col = tile.col + first;
                    const std::int64_t count = std::min(op.tile, tile.cols - first);
                    const Compute* dy = tile[i] + first;
                    const Storage* in = z[row] + 2 * col;
                    Storage* to_dz = dz[row] + 2 * col;
                    if (y) {
                        Storage* to_y = y[row] + col;
#pragma omp simd
                        for (std::int64_t j = 0; j < count; ++j) {
                            const auto gate = static_cast<Compute>(in[2 * j]), up = static_cast<Compute>(in[2 * j + 1]);
                            store(to_y[j], swiglu<Compute>(gate, up, logistic(gate)));
                        }
                    }
                    Compute sum = 0;
                    // dz may be z: each pair is loaded before it is stored, and no iteration touches another's.
#pragma omp simd reduction(+ : sum)
                    for (std::int64_t j = 0; j < count; ++j) {
                        const auto gate = static_cast<Compute>(in[2 * j]), up = static_cast<Compute>(in[2 * j + 1]);
                        const auto gradient = swiglu_backward<Compute>(gate, up, factor * dy[j], logistic(gate));
                        store(to_dz[2 * j], gradient.dgate);
                        store(to_dz[2 * j + 1], gradient.dup);
                        sum += gradient.dot;
                    }
                    dot[col / op.tile][row] = sum;
                }
            }
        });
    });
}

void execute(const LinearHeadDot& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::in_out);
        require(op.head_dim > 0 && product.n % op.head_dim == 0, op.name, ": head_dim ", op.head_dim,
                " must divide the ", product.n, " output columns");
        const auto o = rows_of<const Storage>(operands, "o", op.o, product.m, product.n);
        const auto out = rows_of<Storage>(operands, "out", op.out, product.m, product.n);
        const auto delta = rows_of<Compute>(operands, "delta", op.delta, product.n / op.head_dim, product.m);

        product.template run<Compute>(1, op.head_dim, [&](const AccumulatorTile<Compute>& tile) {
            for (std::int64_t i = 0; i < tile.rows; ++i) {
                const std::int64_t row = tile.row + i;
                for (std::int64_t head = 0; head < tile.cols; head += op.head_dim) {
                    const Compute* acc = tile[i] + head;
                    const Storage* in = o[row] + tile.col + head;
                    Storage* to = out[row] + tile.col + head;
                    Compute sum = 0;
#pragma omp simd reduction(+ : sum)
                    for (std::int64_t j = 0; j < op.head_dim; ++j) {
                        store(to[j], acc[j]);
                        sum += static_cast<Compute>(in[j]) * static_cast<Compute>(to[j]);
                    }
                    delta[(tile.col + head) / op.head_dim][row] = sum;
                }
            }
        });
    });
}

}  // namespace coda::cpu
