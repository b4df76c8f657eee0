// TargetLogit, FinishCrossEntropy, ReduceLoss - the ops before and after the LM head's GEMM: the target's logit, from
// which the exponentials are measured; then, from their sums, the loss and the factors that turn the exponentials into
// a gradient.
#include <cmath>

#include "kernels/core/f8.h"
#include "kernels/cpu/access.h"
#include "kernels/cpu/execute.h"
#include "kernels/math/cross_entropy.h"
#include "kernels/ops/cross_entropy/dot_product.h"
#include "kernels/ops/cross_entropy/op.h"

namespace coda::cpu {
namespace {

template <class Storage, class Compute>
void finish_cross_entropy(const FinishCrossEntropy& op, const Memory& memory) {
    const std::int64_t rows = op.targets.cols, columns = op.exponentials.cols, tiles = op.sums.rows;
    require(tiles >= 1, op.name, ": sums has no tile");
    const Operands operands(op.name, memory);
    const auto* sums = operands.get<Compute>("sums", op.sums, tiles, 2 * rows);
    const auto* target_logit = operands.get<Compute>("target_logit", op.target_logit, 1, rows);
    const auto* targets = operands.get<std::int32_t>("targets", op.targets, 1, rows);
    auto* loss = operands.get<Compute>("loss", op.loss, 1, rows);
    auto* flags = operands.get_optional<std::int32_t>("flags", op.flags, 1, rows);
    Storage* exponentials = nullptr;
    Compute *scale = nullptr, *dot = nullptr;
    if (op.exponentials) {
        exponentials = operands.get<Storage>("exponentials", op.exponentials, rows, columns);
        scale = operands.get<Compute>("scale", op.scale, 1, rows);
        dot = operands.get<Compute>("dot", op.dot, 1, rows);
        for (std::int64_t m = 0; m < rows; ++m)
            require(targets[m] < columns, op.name, ": targets[", m, "] is ", targets[m],
                    ", must be negative (ignored) or below ", columns, ", the columns of exponentials");
    }
#pragma omp parallel for
    for (std::int64_t m = 0; m < rows; ++m) {
        const auto leave = [&](std::int32_t flag) {
            loss[m] = 0;
            if (exponentials) scale[m] = dot[m] = 0;
            if (flags) flags[m] = flag;
        };
        if (targets[m] < 0) {
            leave(0);
            continue;
        }
        // In double, the sum of a thousand tiles keeps float's accuracy, and so does S - e_t where e_t is most of S.
        double sum = 0, sum_ed = 0;
        for (std::int64_t tile = 0; tile < tiles; ++tile) {
            const Compute* pair = sums + tile * op.sums.ld + 2 * m;
            sum += static_cast<double>(pair[0]);
            sum_ed += static_cast<double>(pair[1]);
        }
        if (flags) {
            if (cross_entropy::needs_exact(sum, sum_ed, static_cast<double>(target_logit[m]))) {
                leave(1);
                continue;
            }
            flags[m] = 0;
        }
        loss[m] = static_cast<Compute>(cross_entropy::row_loss(sum, sum_ed));
        if (!exponentials) continue;
        Storage& target = exponentials[m * op.exponentials.ld + targets[m]];
        const double others = sum - static_cast<double>(target);
        target = static_cast<Storage>(static_cast<Compute>(-others));
        scale[m] = static_cast<Compute>(1 / sum);
        dot[m] = static_cast<Compute>(
            (sum_ed + static_cast<double>(target_logit[m]) * (others + static_cast<double>(target))) / sum);
    }
}

/// The op on products times factor(row).
template <class Element, class Compute, class Factor>
void target_logits(const TargetLogit& op, const Operands& operands, const Factor& factor) {
    const std::int64_t rows = op.a.rows, width = op.a.cols;
    const auto* a = operands.get<Element>("a", op.a, rows, width);
    const auto* table = operands.get<Element>("table", op.table, op.table.rows, width);
    const auto* targets = operands.get<std::int32_t>("targets", op.targets, 1, rows);
    auto* target_logit = operands.get<Compute>("target_logit", op.target_logit, 1, rows);
    for (std::int64_t m = 0; m < rows; ++m)
        require(targets[m] < op.table.rows, op.name, ": targets[", m, "] is ", targets[m],
                ", must be negative (ignored) or below ", op.table.rows, ", the rows of table");
#pragma omp parallel for
    for (std::int64_t m = 0; m < rows; ++m) {
        if (targets[m] < 0) {
            target_logit[m] = 0;
            continue;
        }
        const double sum = dot_product(a + m * op.a.ld, table + targets[m] * op.table.ld, width);
        target_logit[m] = static_cast<Compute>(factor(m) * sum);
    }
}

}  // namespace

template <>
void execute(const TargetLogit& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const auto* rstd = operands.get_optional<Compute>("rstd", op.rstd, 1, op.a.rows);
        target_logits<Storage, Compute>(op, operands,
                                        [rstd](std::int64_t m) { return rstd ? static_cast<double>(rstd[m]) : 1.0; });
    });
}

template <>
void execute(const FinishCrossEntropy& op, const Memory& memory) {
    // Without exponentials no operand has the storage type.
    dispatch_storage(op.name, op.exponentials ? op.exponentials.dtype : op.sums.dtype,
                     [&]<class Storage, class Compute>(Types<Storage, Compute>) {
                         finish_cross_entropy<Storage, Compute>(op, memory);
                     });
}

template <>
void execute(const ReduceLoss& op, const Memory& memory) {
    dispatch_statistic(ReduceLoss::name, "loss", op.loss, [&]<class Compute>(Compute) {
        const Operands operands(ReduceLoss::name, memory);
        const auto* loss = operands.get<Compute>("loss", op.loss, 1, op.loss.cols);
        const auto* alpha = operands.get<Compute>("alpha", op.alpha, 1, 1);
        auto* total = operands.get<Compute>("total", op.total, 1, 1);
        double sum = 0;
        for (std::int64_t m = 0; m < op.loss.cols; ++m) sum += static_cast<double>(loss[m]);
        const auto share = static_cast<Compute>(static_cast<double>(*alpha) * sum);
        *total = op.total.beta == Beta::accumulate ? *total + share : share;
    });
}

}  // namespace coda::cpu
