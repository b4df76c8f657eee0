// The forward GEMM programs with an epilogue of their own: RoPE (K1, K7), SwiGLU (K2, K6), cross-entropy (K3, K8),
// residual and norm (K4). The formulas are those of ops.h; macro-tiles hold whole pairs, heads and partial tiles.
#include <algorithm>

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/cpu/operations.h"
#include "kernels/math/rope.h"
#include "kernels/math/swiglu.h"
#include "kernels/tiling.h"

namespace coda::cpu {

namespace {

template <class Op>
void linear_rope(const Op& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        const std::int64_t head_dim = op.head_dim;
        require(head_dim > 0 && head_dim % 2 == 0 && product.n % head_dim == 0, op.name, ": head_dim ", head_dim,
                " must be even and divide the ", product.n, " output columns");
        require(op.rotated >= 0 && op.rotated <= product.n && op.rotated % head_dim == 0, op.name, ": rotated ",
                op.rotated, " must be whole heads of ", head_dim, " within ", product.n, " columns");
        const RowFactor<Compute> factor(operands, op, product.m);
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

template <class Op>
void linear_swiglu(const Op& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        require(product.n % 2 == 0, op.name, ": w has ", product.n, " rows, not pairs of gate and up");
        const RowFactor<Compute> factor(operands, op, product.m);
        constexpr bool optional = requires { op.rstd; };
        require(optional || (op.z && op.y), op.name, ": operand ", op.z ? "y" : "z", " is missing");
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
                        const Compute gate = scale * acc[2 * j];
                        store(to[j], swiglu<Compute>(gate, scale * acc[2 * j + 1], logistic(gate)));
                    }
                }
            }
        });
    });
}

// The maximum of a tile without a valid column; its sum is 0. Finite: merging two such pairs would give -inf - -inf.
template <class Compute>
constexpr Compute kNoMaximum = Compute(-1e30);

/// The largest of kNoMaximum and scale acc[0, count). One maximum a lane: both compilers vectorise that.
template <class Compute>
Compute largest_of(const Compute* acc, Compute scale, std::int64_t count) {
    constexpr std::int64_t kLanes = 64 / sizeof(Compute);
    Compute lanes[kLanes];
    std::fill(lanes, lanes + kLanes, kNoMaximum<Compute>);
    const auto raise = [&](std::int64_t lane, Compute value) {
        lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    };
    std::int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes) {
#pragma omp simd
        for (std::int64_t lane = 0; lane < kLanes; ++lane) raise(lane, scale * acc[j + lane]);
    }
    for (; j < count; ++j) raise(0, scale * acc[j]);
    return *std::max_element(lanes, lanes + kLanes);
}

/// Σ exp(scale acc[j] - shift) over [0, count), of scale acc[j] as it is stored.
template <class Storage, class Compute>
Compute sum_of_exponentials(const Compute* acc, Compute scale, Compute shift, std::int64_t count) {
    Compute sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j) {
        Storage stored;
        store(stored, scale * acc[j]);
        sum += exponential(static_cast<Compute>(stored) - shift);
    }
    return sum;
}

template <class Op>
void linear_cross_entropy(const Op& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        require(op.vocab > 0 && op.vocab <= product.n, op.name, ": vocab ", op.vocab, " must be 1 to ", product.n,
                ", the rows of w");
        require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
        const RowFactor<Compute> factor(operands, op, product.m);
        const auto* targets = operands.get<std::int32_t>("targets", op.targets, 1, product.m);
        for (std::int64_t row = 0; row < product.m; ++row)
            require(targets[row] < op.vocab, op.name, ": targets[", row, "] is ", targets[row],
                    ", must be negative (ignored) or below the vocabulary ", op.vocab);
        const auto logits = optional_rows_of<Storage>(operands, "logits", op.logits, product.m, product.n);
        const auto lse = rows_of<Compute>(operands, "lse", op.lse, ceil_div(product.n, op.tile), 2 * product.m);
        auto* target_logit = operands.get<Compute>("target_logit", op.target_logit, 1, product.m);

        product.template run<Compute>(1, op.tile, [&](const AccumulatorTile<Compute>& tile) {
            const std::int64_t valid = std::clamp<std::int64_t>(op.vocab - tile.col, 0, tile.cols);
            for (std::int64_t i = 0; i < tile.rows; ++i) {
                const std::int64_t row = tile.row + i;
                const Compute* acc = tile[i];
                const Compute scale = factor[row];
                if (logits) {
                    Storage* to = logits[row] + tile.col;
#pragma omp simd
                    for (std::int64_t j = 0; j < valid; ++j) store(to[j], scale * acc[j]);
                    std::fill(to + valid, to + tile.cols, static_cast<Storage>(0.0f));
                }

                for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                    const std::int64_t count = std::clamp<std::int64_t>(valid - first, 0, op.tile);
                    const Compute largest = largest_of(acc + first, scale, count);
                    Compute* pair = lse[(tile.col + first) / op.tile] + 2 * row;
                    pair[0] = largest;
                    pair[1] = sum_of_exponentials<Storage>(acc + first, scale, largest, count);
                }
                const std::int64_t target = targets[row] - tile.col;
                if (target >= 0 && target < valid) target_logit[row] = scale * acc[target];
            }
        });
    });
}

}  // namespace

void execute(const LinearRope& op, const Memory& memory) { linear_rope(op, memory); }
void execute(const LinearRstdRope& op, const Memory& memory) { linear_rope(op, memory); }
void execute(const LinearSwiglu& op, const Memory& memory) { linear_swiglu(op, memory); }
void execute(const LinearRstdSwiglu& op, const Memory& memory) { linear_swiglu(op, memory); }
void execute(const LinearCrossEntropy& op, const Memory& memory) { linear_cross_entropy(op, memory); }
void execute(const LinearRstdCrossEntropy& op, const Memory& memory) { linear_cross_entropy(op, memory); }

void execute(const LinearResidualRms& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
        const auto residual = rows_of<const Storage>(operands, "residual", op.residual, product.m, product.n);
        const auto* gamma = operands.get<Compute>("gamma", op.gamma, 1, product.n);
        const auto x = rows_of<Storage>(operands, "x", op.x, product.m, product.n);
        const auto h = rows_of<Storage>(operands, "h", op.h, product.m, product.n);
        const auto square = rows_of<Compute>(operands, "square", op.square, ceil_div(product.n, op.tile), product.m);

        product.template run<Compute>(1, op.tile, [&](const AccumulatorTile<Compute>& tile) {
            for (std::int64_t i = 0; i < tile.rows; ++i) {
                const std::int64_t row = tile.row + i;
                for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                    const std::int64_t col = tile.col + first;
                    const std::int64_t count = std::min(op.tile, tile.cols - first);
                    const Compute* acc = tile[i] + first;
                    const Compute* weight = gamma + col;
                    const Storage* in = residual[row] + col;
                    Storage *to_x = x[row] + col, *to_h = h[row] + col;
                    Compute sum = 0;
#pragma omp simd reduction(+ : sum)
                    for (std::int64_t j = 0; j < count; ++j) {
                        const Compute value = acc[j] + static_cast<Compute>(in[j]);
                        store(to_x[j], value);
                        store(to_h[j], value * weight[j]);
                        sum += value * value;
                    }
                    square[col / op.tile][row] = sum;
                }
            }
        });
    });
}

}  // namespace coda::cpu
