// The forward GEMM programs with an epilogue of their own: RoPE (K1, K7), SwiGLU (K2, K6), cross-entropy (K3, K8),
// residual and norm (K4). The formulas are those of ops.h; macro-tiles hold whole pairs, heads and partial tiles.
#include <algorithm>
#include <numbers>
#include <vector>

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/cpu/operations.h"
#include "kernels/math/cross_entropy.h"
#include "kernels/math/rope.h"
#include "kernels/math/swiglu.h"
#include "kernels/tiling.h"

namespace coda::cpu {

void execute(const LinearRope& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        const std::int64_t head_dim = op.head_dim;
        require(head_dim > 0 && head_dim % 2 == 0 && product.n % head_dim == 0, op.name, ": head_dim ", head_dim,
                " must be even and divide the ", product.n, " output columns");
        require(op.rotated >= 0 && op.rotated <= product.n && op.rotated % head_dim == 0, op.name, ": rotated ",
                op.rotated, " must be whole heads of ", head_dim, " within ", product.n, " columns");
        const RowFactor<Compute> factor(operands, op.rstd, product.m);
        const auto rope = rows_of<const Compute>(operands, "rope", op.rope, op.rope.rows, head_dim);
        const auto* positions = operands.get<std::int32_t>("positions", op.positions, 1, product.m);
        operands.require_indices("positions", positions, product.m, op.rope.rows);
        const auto out = rows_of<Storage>(operands, "out", op.out, product.m, product.n);

        product.template run<Compute>(1, head_dim, [&](const AccumulatorTile<Compute>& tile) {
            for (std::int64_t i = 0; i < tile.rows; ++i) {
                const Compute scale = factor[tile.row + i];
                const Compute* angle = rope[positions[tile.row + i]];
                for (std::int64_t head = 0; head < tile.cols; head += head_dim) {
                    const Compute* acc = tile[i] + head;
                    Storage* to = out[tile.row + i] + tile.col + head;
                    if (tile.col + head >= op.rotated) {
#pragma omp simd
                        for (std::int64_t j = 0; j < head_dim; ++j) store(to[j], scale * acc[j]);
                        continue;
                    }
#pragma omp simd
                    for (std::int64_t j = 0; j < head_dim; j += 2) {
                        const auto turned =
                            rotate_pair<Compute>({scale * acc[j], scale * acc[j + 1]}, angle[j], angle[j + 1]);
                        store(to[j], turned.first);
                        store(to[j + 1], turned.second);
                    }
                }
            }
        });
    });
}

void execute(const LinearSwiglu& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        require(product.n % 2 == 0, op.name, ": w has ", product.n, " rows, not pairs of gate and up");
        const RowFactor<Compute> factor(operands, op.rstd, product.m);
        const auto z = optional_rows_of<Storage>(operands, "z", op.z, product.m, product.n);
        const auto y = optional_rows_of<Storage>(operands, "y", op.y, product.m, product.n / 2);

        product.template run<Compute>(1, 2, [&](const AccumulatorTile<Compute>& tile) {
            for (std::int64_t i = 0; i < tile.rows; ++i) {
                const Compute* acc = tile[i];
                const Compute scale = factor[tile.row + i];
                if (z) {
                    Storage* to = z[tile.row + i] + tile.col;
#pragma omp simd
                    for (std::int64_t j = 0; j < tile.cols; ++j) store(to[j], scale * acc[j]);
                }
                if (y) {
                    Storage* to = y[tile.row + i] + tile.col / 2;
#pragma omp simd
                    for (std::int64_t j = 0; j < tile.cols / 2; ++j) {
                        Storage pair[2];
                        store(pair[0], scale * acc[2 * j]);
                        store(pair[1], scale * acc[2 * j + 1]);
                        const auto gate = static_cast<Compute>(pair[0]), up = static_cast<Compute>(pair[1]);
                        store(to[j], swiglu<Compute>(gate, up, logistic(gate)));
                    }
                }
            }
        });
    });
}

namespace {

/// A pair of partial sums: Σ e and Σ e d.
template <class Compute>
struct ExponentialSums {
    Compute e, ed;
};

/// Stores e of d = scale acc[j] - target_logit over [0, count) and returns the sums over e as it is stored.
template <class Storage, class Compute>
ExponentialSums<Compute> store_exponentials(const Compute* acc, Compute scale, Compute target_logit, std::int64_t count,
                                            Storage* to) {
    constexpr auto kMost = static_cast<Compute>(cross_entropy::kLimit * std::numbers::ln2);
    Compute sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (std::int64_t j = 0; j < count; ++j) {
        const Compute d = scale * acc[j] - target_logit;
        const Compute limited = d > kMost ? kMost : d;  // NaN stays
        store(to[j], exponential<Compute, cross_entropy::kShift>(limited));
        const auto e = static_cast<Compute>(to[j]);
        sum += e;
        dot += e * d;
    }
    return {sum, dot};
}

}  // namespace

void execute(const LinearCrossEntropy& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        require(op.vocab > 0 && op.vocab <= product.n, op.name, ": vocab ", op.vocab, " must be 1 to ", product.n,
                ", the rows of w");
        require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
        const RowFactor<Compute> factor(operands, op.rstd, product.m);
        const auto* target_logit = operands.get<Compute>("target_logit", op.target_logit, 1, product.m);
        const auto exponentials =
            optional_rows_of<Storage>(operands, "exponentials", op.exponentials, product.m, product.n);
        const auto sums = rows_of<Compute>(operands, "sums", op.sums, ceil_div(product.n, op.tile), 2 * product.m);

        product.template run<Compute>(1, op.tile, [&](const AccumulatorTile<Compute>& tile) {
            const std::int64_t valid = std::clamp<std::int64_t>(op.vocab - tile.col, 0, tile.cols);
            // Where nothing is stored, a row that nobody reads: the same code, so the same bits in the sums.
            std::vector<Storage> unread(exponentials ? 0 : static_cast<std::size_t>(tile.cols));
            for (std::int64_t i = 0; i < tile.rows; ++i) {
                const std::int64_t row = tile.row + i;
                Storage* to = exponentials ? exponentials[row] + tile.col : unread.data();
                for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                    const std::int64_t count = std::clamp<std::int64_t>(valid - first, 0, op.tile);
                    const ExponentialSums<Compute> part =
                        store_exponentials(tile[i] + first, factor[row], target_logit[row], count, to + first);
                    Compute* pair = sums[(tile.col + first) / op.tile] + 2 * row;
                    pair[0] = part.e;
                    pair[1] = part.ed;
                }
                std::fill(to + valid, to + tile.cols, Storage{});
            }
        });
    });
}

void execute(const LinearResidualRms& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
        const auto residual = rows_of<const Storage>(operands, "residual", op.residual, product.m, product.n);
        const auto x = rows_of<Storage>(operands, "x", op.x, product.m, product.n);
        const auto square = rows_of<Compute>(operands, "square", op.square, ceil_div(product.n, op.tile), product.m);

        product.template run<Compute>(1, op.tile, [&](const AccumulatorTile<Compute>& tile) {
            for (std::int64_t i = 0; i < tile.rows; ++i) {
                const std::int64_t row = tile.row + i;
                for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                    const std::int64_t col = tile.col + first;
                    const std::int64_t count = std::min(op.tile, tile.cols - first);
                    const Compute* acc = tile[i] + first;
                    const Storage* in = residual[row] + col;
                    Storage* to_x = x[row] + col;
                    Compute sum = 0;
#pragma omp simd reduction(+ : sum)
                    for (std::int64_t j = 0; j < count; ++j) {
                        const Compute value = acc[j] + static_cast<Compute>(in[j]);
                        store(to_x[j], value);
                        sum += value * value;
                    }
                    square[col / op.tile][row] = sum;
                }
            }
        });
    });
}

}  // namespace coda::cpu
