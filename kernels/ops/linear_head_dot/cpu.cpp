// LinearHeadDot on the CPU. Macro-tiles hold whole heads.
#include "kernels/cpu/execute.h"
#include "kernels/cpu/f8_product.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/ops/linear_head_dot/op.h"

namespace coda::cpu {

namespace {

/// The op on accumulators times `factor`, of the FP8 form.
template <class Storage, class Compute, class Product, class Factor>
void finish(const LinearHeadDot& op, const Operands& operands, const Product& product, Factor factor) {
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
                    store(to[j], factor * acc[j]);
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
    const Operands operands(op.name, memory);
    if (is_f8(op.a.dtype))
        return finish<Bf16, float>(op, operands, F8Product(operands, memory, op.a, op.w),
                                   f8_factor(operands, "scale", op.scale));
    require_no_f8_factor(op.name, "scale", op.scale, op.a);
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        finish<Storage, Compute>(op, operands, LinearProduct<Storage>(operands, op.a, op.w, op.layout), NoFactor());
    });
}

}  // namespace coda::cpu
