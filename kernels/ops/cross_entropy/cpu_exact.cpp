// ExactCrossEntropy on the CPU: a flagged row's logits in double, its softmax from their largest, and the gradient.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/cpu/access.h"
#include "kernels/cpu/execute.h"
#include "kernels/math/cross_entropy.h"
#include "kernels/ops/cross_entropy/dot_product.h"
#include "kernels/ops/cross_entropy/op.h"

namespace coda::cpu {
namespace {

/// Stores q >= 0. Only bf16 is so coarse that what one element loses must go to the next.
template <class Storage>
void store_share(double q, float& carry, Storage& to) {
    if constexpr (std::is_same_v<Storage, Bf16>)
        to.bits = cross_entropy::round_carrying(static_cast<float>(q), carry);
    else
        to = static_cast<Storage>(q);
}

struct Others {
    double largest = -std::numeric_limits<double>::infinity();
    double sum = 0;  // Σ exp(l - largest)
};

/// Over the columns but the target's. NaN where a logit is not finite, the target's included.
Others others_of(const std::vector<double>& logits, std::size_t target) {
    Others others;
    bool finite = true;
    for (std::size_t v = 0; v < logits.size(); ++v) {
        finite = finite && std::isfinite(logits[v]);
        if (v != target) others.largest = std::max(others.largest, logits[v]);
    }
    if (!finite) return {std::nan(""), std::nan("")};
    for (std::size_t v = 0; v < logits.size(); ++v)
        if (v != target) others.sum += std::exp(logits[v] - others.largest);
    return others;
}

template <class Storage, class Compute>
void exact_cross_entropy(const ExactCrossEntropy& op, const Memory& memory) {
    const std::int64_t rows = op.a.rows, width = op.a.cols, vocab = op.table.rows, columns = op.exponentials.cols;
    const Operands operands(op.name, memory);
    const auto* a = operands.get<Storage>("a", op.a, rows, width);
    const auto* table = operands.get<Storage>("table", op.table, vocab, width);
    const auto* rstd = operands.get_optional<Compute>("rstd", op.rstd, 1, rows);
    const auto* targets = operands.get<std::int32_t>("targets", op.targets, 1, rows);
    const auto* flags = operands.get<std::int32_t>("flags", op.flags, 1, rows);
    auto* loss = operands.get<Compute>("loss", op.loss, 1, rows);
    Storage* exponentials = nullptr;
    Compute *scale = nullptr, *dot = nullptr;
    if (op.exponentials) {
        require(columns >= vocab, op.name, ": exponentials have ", columns, " columns, table has ", vocab, " rows");
        exponentials = operands.get<Storage>("exponentials", op.exponentials, rows, columns);
        scale = operands.get<Compute>("scale", op.scale, 1, rows);
        dot = operands.get<Compute>("dot", op.dot, 1, rows);
    }
    for (std::int64_t m = 0; m < rows; ++m)
        require(targets[m] < vocab, op.name, ": targets[", m, "] is ", targets[m],
                ", must be negative (ignored) or below ", vocab, ", the rows of table");
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t m = 0; m < rows; ++m) {
        if (flags[m] == 0 || targets[m] < 0) continue;
        std::vector<double> logits(static_cast<std::size_t>(vocab));
        for (std::int64_t v = 0; v < vocab; ++v)
            logits[static_cast<std::size_t>(v)] = (rstd ? static_cast<double>(rstd[m]) : 1.0) *
                                                  dot_product(a + m * op.a.ld, table + v * op.table.ld, width);
        const auto target = static_cast<std::size_t>(targets[m]);
        const Others others = others_of(logits, target);
        const cross_entropy::ExactRow row = cross_entropy::exact_row(others.largest, others.sum, logits[target]);
        loss[m] = static_cast<Compute>(row.loss);
        if (!exponentials) continue;
        Storage* gradient = exponentials + m * op.exponentials.ld;
        float carry = 0;
        double sum = -1, sum_l = 0;  // Σ g, the target's -1 included, and Σ g (l - l_target)
        for (std::size_t v = 0; v < logits.size(); ++v) {
            if (v == target) continue;
            store_share(std::exp(logits[v] - others.largest) / others.sum, carry, gradient[v]);
            const auto g = static_cast<double>(gradient[v]);
            sum += g;
            if (g != 0) sum_l += g * (logits[v] - logits[target]);
        }
        gradient[target] = static_cast<Storage>(static_cast<Compute>(std::isnan(row.loss) ? row.loss : -1));
        std::fill(gradient + vocab, gradient + columns, Storage{});
        scale[m] = static_cast<Compute>(row.scale);
        dot[m] = static_cast<Compute>(row.scale * (sum_l + logits[target] * sum));
    }
}

}  // namespace

template <>
void execute(const ExactCrossEntropy& op, const Memory& memory) {
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        exact_cross_entropy<Storage, Compute>(op, memory);
    });
}

}  // namespace coda::cpu
