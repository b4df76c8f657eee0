// LinearHeadDot on the CPU. Macro-tiles hold whole heads.
#include "kernels/cpu/execute.h"
#include "kernels/cpu/product.h"
#include "kernels/ops/linear_head_dot/op.h"

namespace coda::cpu {

namespace {

/// The op on accumulators times `undo`.
template <class Storage, class Compute, class Product, class Undo>
void finish(const LinearHeadDot& op, const Operands& operands, const Product& product, Undo undo) {
    require(op.head_dim > 0 && product.n % op.head_dim == 0, op.name, ": head_dim ", op.head_dim, " must divide the ",
            product.n, " output columns");
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
                    store(to[j], undo * acc[j]);
                    sum += static_cast<Compute>(in[j]) * static_cast<Compute>(to[j]);
                }
                delta[(tile.col + head) / op.head_dim][row] = sum;
            }
        }
    });
}

}  // namespace

template <>
void execute(const LinearHeadDot& op, const Memory& memory) {
    with_product(
        op, memory,
        [&]<class Storage, class Compute>(Types<Storage, Compute>, const auto& operands, const auto& product,
                                          auto undo) { finish<Storage, Compute>(op, operands, product, undo); });
}

}  // namespace coda::cpu
