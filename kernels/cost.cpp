#include "kernels/cost.h"

#include <type_traits>

namespace coda {
namespace {

/// A GEMM op that states no flops has operands a (M, K) and w (N, K) or (K, N).
template <class Op>
concept HasWeight = requires(const Op& op) {
    op.a;
    op.w;
};

template <class Op>
double flops(const Op& op) {
    if constexpr (requires { op.flops(); }) {
        return op.flops();
    } else {
        static_assert(HasWeight<Op>, "an op that is not a GEMM must state its flops()");
        return 2.0 * static_cast<double>(op.a.rows) * static_cast<double>(op.w.count());
    }
}

template <class Op>
double bytes(const Op& op) {
    double total = 0;
    visit_operands(op, [&](const char*, const auto& operand) {
        if (!operand || std::is_same_v<std::decay_t<decltype(operand)>, InOut<Scratch>>) return;
        std::int64_t size = operand.bytes();
        if constexpr (requires { op.bytes_of(operand); }) size = op.bytes_of(operand);
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
            if constexpr (requires { T::work; }) return T::work;
            return HasWeight<T> ? Work::gemm : Work::other;
        },
        op);
}

bool multiplies_f8(const Op& op) {
    return std::visit(
        []<class T>(const T& concrete) {
            if constexpr (HasWeight<T>) return is_f8(concrete.w.dtype);
            if constexpr (std::is_same_v<T, WeightGradient>) return is_f8(concrete.dy.dtype);
            return false;
        },
        op);
}

}  // namespace coda
