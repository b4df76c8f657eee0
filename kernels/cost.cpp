#include "kernels/cost.h"

#include <algorithm>
#include <type_traits>

namespace coda {
namespace {

double elements(const View& view) { return static_cast<double>(view.count()); }

template <class Op>
double attention_flops(const Op& op) {
    return 2.0 * static_cast<double>(op.qkv.rows) * static_cast<double>(op.seq_len) * static_cast<double>(op.heads) *
           static_cast<double>(op.head_dim);
}

constexpr double kAttentionBackwardRatio = 2.5;

/// Every GEMM program has operands a (M, K) and w (N, K) or (K, N).
template <class Op>
concept GemmProgram = requires(const Op& op) {
    op.a;
    op.w;
};

template <class Op>
constexpr bool kAttention = std::is_same_v<Op, Attention> || std::is_same_v<Op, AttentionBackward>;

template <GemmProgram Op>
double flops(const Op& op) {
    return 2.0 * static_cast<double>(op.a.rows) * elements(op.w);
}
double flops(const WeightGradient& op) { return 2.0 * static_cast<double>(op.dy.rows) * elements(op.grad); }
double flops(const Attention& op) { return attention_flops(op); }
double flops(const AttentionBackward& op) { return kAttentionBackwardRatio * attention_flops(op); }
double flops(const Embed& op) { return 2 * elements(op.x); }
double flops(const EmbedBackward& op) { return elements(op.dx); }
double flops(const TargetLogit& op) { return 2 * elements(op.a); }
double flops(const FinishCrossEntropy& op) { return elements(op.sums); }
double flops(const FinishRstd& op) { return elements(op.square); }
double flops(const FinishRowSum& op) { return elements(op.partials); }
double flops(const FinishColumnSum& op) { return elements(op.partials); }
double flops(const ReduceLoss& op) { return elements(op.loss); }
double flops(const GradNorm& op) { return 2 * elements(op.grad); }
double flops(const AdamW& op) { return 16 * elements(op.grad); }
double flops(const Zero&) { return 0; }

/// Bytes of a table of which at most one row a token is touched.
double gathered_bytes(const View& table, const View& tokens) {
    View touched = table;
    touched.rows = std::min(table.rows, tokens.cols);
    return static_cast<double>(touched.bytes());
}

template <class Op>
double bytes(const Op& op) {
    double total = 0;
    const auto add = [&](const auto& operand) {
        using Operand = std::decay_t<decltype(operand)>;
        if (!operand || std::is_same_v<Operand, InOut<Scratch>>) return;
        double size = static_cast<double>(operand.bytes());
        if constexpr (std::is_same_v<Op, Embed>)
            if (&static_cast<const View&>(operand) == &op.table) size = gathered_bytes(op.table, op.tokens);
        if constexpr (std::is_same_v<Op, EmbedBackward>)
            if (&static_cast<const View&>(operand) == &op.grad) size = gathered_bytes(op.grad, op.tokens);
        if constexpr (std::is_same_v<Op, TargetLogit>)
            if (&static_cast<const View&>(operand) == &op.table) size = gathered_bytes(op.table, op.targets);
        if constexpr (std::is_same_v<Op, FinishCrossEntropy>)
            if (&static_cast<const View&>(operand) == &op.exponentials)
                size = static_cast<double>(op.exponentials.rows * size_of(op.exponentials.dtype));
        total += operand.access() == Access::inout ? 2 * size : size;
    };
    std::apply([&](const auto&... entries) { (add(op.*(entries.member)), ...); }, Op::operands);
    return total;
}

}  // namespace

Cost cost(const Op& op) {
    return std::visit([](const auto& concrete) { return Cost{flops(concrete), bytes(concrete)}; }, op);
}

Work work_of(const Op& op) {
    return std::visit(
        []<class T>(const T&) {
            if (GemmProgram<T> || std::is_same_v<T, WeightGradient>) return Work::product;
            return kAttention<T> ? Work::attention : Work::other;
        },
        op);
}

}  // namespace coda
