// LinearRope on the CPU (K1, K7). Macro-tiles hold whole heads.
#include <cmath>

#include "kernels/cpu/execute.h"
#include "kernels/cpu/product.h"
#include "kernels/math/rope.h"
#include "kernels/ops/linear_rope/op.h"

namespace coda::cpu {

namespace {

/// In place of a norm of heads.
struct NoNorm {
    template <class Z>
    const Z& of_head(std::int64_t, std::int64_t, const Z& z) const {
        return z;
    }
};

/// The norm of q and k heads, in the order of a head's elements.
template <class Storage, class Compute>
class HeadNorm {
  public:
    HeadNorm(const LinearRope& op, const Operands& operands, std::int64_t m)
        : head_dim_(op.head_dim),
          queries_(op.queries),
          eps_(static_cast<Compute>(op.eps)),
          gain_(rows_of<const Compute>(operands, "gain", op.gain, 2, head_dim_)),
          pre_(optional_rows_of<Storage>(operands, "pre", op.pre, m, op.rotated)),
          rho_(optional_rows_of<Compute>(operands, "rho", op.rho, op.rotated / head_dim_, m)) {}

    /// gain ⊙ rho z of the head at `column`, as a function of the element. Stores z and rho of it.
    template <class Z>
    auto of_head(std::int64_t row, std::int64_t column, const Z& z) const {
        Compute squares = 0;
        for (std::int64_t j = 0; j < head_dim_; ++j) squares += z(j) * z(j);
        const Compute rho = 1 / std::sqrt(squares / static_cast<Compute>(head_dim_) + eps_);
        if (pre_)
            for (std::int64_t j = 0; j < head_dim_; ++j) store(pre_[row][column + j], z(j));
        if (rho_) rho_[column / head_dim_][row] = rho;
        const Compute* gain = gain_[column < queries_ ? 0 : 1];
        return [=](std::int64_t j) { return gain[j] * (rho * z(j)); };
    }

  private:
    std::int64_t head_dim_, queries_;
    Compute eps_;
    Rows<const Compute> gain_;
    Rows<Storage> pre_;
    Rows<Compute> rho_;
};

/// The op on accumulators times `undo` and rstd. `bias`: its first element, or NoBias. `norm`: HeadNorm, or NoNorm.
template <class Storage, class Compute, class Product, class Undo, class Bias, class Norm>
void finish(const LinearRope& op, const Operands& operands, const Product& product, Undo undo, Bias bias,
            const Norm& norm) {
    const RowFactor<Compute> rstd(operands, op.rstd, product.m);
    const std::int64_t head_dim = op.head_dim;
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
                const auto z = [=](std::int64_t j) { return scale * acc[j] + add[j]; };
                const auto value = norm.of_head(tile.row + i, tile.col + head, z);
#pragma omp simd
                for (std::int64_t j = 0; j < head_dim; j += 2) {
                    const auto turned = rotate_pair<Compute>({value(j), value(j + 1)}, angle[j], angle[j + 1]);
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
                     require_heads(op, product.n);
                     const auto finished = [&](auto bias, const auto& norm) {
                         finish<Storage, Compute>(op, operands, product, undo, bias, norm);
                     };
                     if (op.gain) return finished(NoBias(), HeadNorm<Storage, Compute>(op, operands, product.m));
                     if (!op.bias) return finished(NoBias(), NoNorm());
                     finished(operands.template get<Compute>("bias", op.bias, 1, product.n), NoNorm());
                 });
}

}  // namespace coda::cpu
