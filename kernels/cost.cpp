#include "kernels/cost.h"

#include <type_traits>

namespace coda {
namespace {

template <class Op>
double flops(const Op& op) {
    if constexpr (Op::traits.has(Trait::flops)) {
        return op.flops();
    } else {
        static_assert(Op::traits.has(Trait::w), "an op that is not a GEMM must state its flops()");
        // w is (N, K) or (K, N).
        return 2.0 * static_cast<double>(op.a.rows) * static_cast<double>(op.w.count());
    }
}

template <class Op>
double bytes(const Op& op) {
    double total = 0;
    visit_operands(op, [&](const char*, const auto& operand) {
        if (!operand || std::is_same_v<std::decay_t<decltype(operand)>, InOut<Scratch>>) return;
        std::int64_t size = operand.bytes();
        if constexpr (Op::traits.has(Trait::bytes_of)) size = op.bytes_of(operand);
        total += static_cast<double>(operand.access() == Access::inout ? 2 * size : size);
    });
    return total;
}

}  // namespace

Cost cost(const Op& op) {
    return std::visit([](const auto& concrete) { return Cost{flops(concrete), bytes(concrete)}; }, op);
}

Work work_of(const Op& op) {
    return std::visit(
        []<class T>(const T&) {
            if constexpr (T::traits.has(Trait::work)) return T::work;
            return T::traits.has(Trait::w) ? Work::gemm : Work::other;
        },
        op);
}

bool multiplies_f8(const Op& op) {
    return std::visit(
        []<class T>(const T& concrete) {
            if constexpr (T::traits.has(Trait::w)) return is_f8(concrete.w.dtype);
            if constexpr (std::is_same_v<T, WeightGradient>) return is_f8(concrete.dy.dtype);
            return false;
        },
        op);
}

}  // namespace coda
