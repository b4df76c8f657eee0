// LinearRope on the CPU (K1, K7). Macro-tiles hold whole heads.
#include "kernels/cpu/execute.h"
#include "kernels/cpu/product.h"
#include "kernels/math/rope.h"
#include "kernels/ops/linear_rope/op.h"

namespace coda::cpu {

namespace {

/// In place of a bias. NOTE: adding 0 would make a stored -0 a 0, and LLaMA's bits others.
struct NoBias {
    NoBias operator+(std::int64_t) const { return {}; }
    NoBias operator[](std::int64_t) const { return {}; }
    template <class Compute>
    friend Compute operator+(Compute value, NoBias) {
        return value;
    }
};

/// The op on accumulators times `undo` and rstd. `bias`: its first element, or NoBias.
template <class Storage, class Compute, class Product, class Undo, class Bias>
void finish(const LinearRope& op, const Operands& operands, const Product& product, Undo undo, Bias bias) {
    const RowFactor<Compute> rstd(operands, op.rstd, product.m);
    const std::int64_t head_dim = op.head_dim;
    require(head_dim > 0 && head_dim % 2 == 0 && product.n % head_dim == 0, op.name, ": head_dim ", head_dim,
            " must be even and divide the ", product.n, " output columns");
    require(op.rotated >= 0 && op.rotated <= product.n && op.rotated % head_dim == 0, op.name, ": rotated ", op.rotated,
            " must be whole heads of ", head_dim, " within ", product.n, " columns");
    const auto rope = rows_of<const Compute>(operands, "rope", op.rope, op.rope.rows, head_dim);
    const auto* positions = operands.get<std::int32_t>("positions", op.positions, 1, product.m);
    operands.require_indices("positions", positions, product.m, op.rope.rows);
    const auto out = rows_of<Storage>(operands, "out", op.out, product.m, product.n);

    product.template run<Compute>(1, head_dim, [&](const AccumulatorTile<Compute>& tile) {
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const Compute scale = undo * rstd[tile.row + i];
            const Compute* angle = rope[positions[tile.row + i]];
            for (std::int64_t head = 0; head < tile.cols; head += head_dim) {
                const Compute* acc = tile[i] + head;
                const auto add = bias + (tile.col + head);
                Storage* to = out[tile.row + i] + tile.col + head;
                if (tile.col + head >= op.rotated) {
#pragma omp simd
                    for (std::int64_t j = 0; j < head_dim; ++j) store(to[j], scale * acc[j] + add[j]);
                    continue;
                }
#pragma omp simd
                for (std::int64_t j = 0; j < head_dim; j += 2) {
                    const auto turned = rotate_pair<Compute>({scale * acc[j] + add[j], scale * acc[j + 1] + add[j + 1]},
                                                             angle[j], angle[j + 1]);
                    store(to[j], turned.first);
                    store(to[j + 1], turned.second);
                }
            }
        }
    });
}

}  // namespace

template <>
void execute(const LinearRope& op, const Memory& memory) {
    with_product(op, memory,
                 [&]<class Storage, class Compute>(Types<Storage, Compute>, const auto& operands, const auto& product,
                                                   auto undo) {
                     if (!op.bias) return finish<Storage, Compute>(op, operands, product, undo, NoBias());
                     const Compute* bias = operands.template get<Compute>("bias", op.bias, 1, product.n);
                     finish<Storage, Compute>(op, operands, product, undo, bias);
                 });
}

}  // namespace coda::cpu
