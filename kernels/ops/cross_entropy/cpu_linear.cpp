// LinearCrossEntropy on the CPU (K3, K8). Macro-tiles hold whole partial tiles.
#include <algorithm>
#include <numbers>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/cpu/product.h"
#include "kernels/math/cross_entropy.h"
#include "kernels/ops/cross_entropy/op.h"

namespace coda::cpu {

namespace {

/// A pair of partial sums: Σ e and Σ e d.
template <class Compute>
struct ExponentialSums {
    Compute e, ed;
};

/// Stores e of d = rstd acc[j] - target_logit over [0, count) and returns the sums, taken of e as stored.
template <class Storage, class Compute>
ExponentialSums<Compute> store_exponentials(const Compute* acc, Compute rstd, Compute target_logit, std::int64_t count,
                                            Storage* to) {
    constexpr auto kMost = static_cast<Compute>(cross_entropy::kLimit * std::numbers::ln2);
    Compute sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (std::int64_t j = 0; j < count; ++j) {
        const Compute d = rstd * acc[j] - target_logit;
        const Compute limited = d > kMost ? kMost : d;  // NaN stays NaN
        store(to[j], exponential<Compute, cross_entropy::kShift>(limited));
        const auto e = static_cast<Compute>(to[j]);
        sum += e;
        dot += e * d;
    }
    return {sum, dot};
}

/// The op on accumulators times factor(row).
template <class Storage, class Compute, class Product, class Factor>
void finish(const LinearCrossEntropy& op, const Operands& operands, const Product& product, const Factor& factor) {
    require(op.vocab > 0 && op.vocab <= product.n, op.name, ": vocab ", op.vocab, " must be 1 to ", product.n,
            ", the rows of w");
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    const auto* target_logit = operands.get<Compute>("target_logit", op.target_logit, 1, product.m);
    const auto exponentials =
        optional_rows_of<Storage>(operands, "exponentials", op.exponentials, product.m, product.n);
    const auto sums = rows_of<Compute>(operands, "sums", op.sums, ceil_div(product.n, op.tile), 2 * product.m);

    product.template run<Compute>(1, op.tile, [&](const AccumulatorTile<Compute>& tile) {
        const std::int64_t valid = std::clamp<std::int64_t>(op.vocab - tile.col, 0, tile.cols);
        // Where nothing is stored, the same code writes to a row that nobody reads: the sums have the same bits.
        std::vector<Storage> unread(exponentials ? 0 : static_cast<std::size_t>(tile.cols));
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const std::int64_t row = tile.row + i;
            Storage* to = exponentials ? exponentials[row] + tile.col : unread.data();
            for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                const std::int64_t count = std::clamp<std::int64_t>(valid - first, 0, op.tile);
                const ExponentialSums<Compute> part =
                    store_exponentials(tile[i] + first, factor(row), target_logit[row], count, to + first);
                Compute* pair = sums[(tile.col + first) / op.tile] + 2 * row;
                pair[0] = part.e;
                pair[1] = part.ed;
            }
            std::fill(to + valid, to + tile.cols, Storage{});
        }
    });
}

}  // namespace

template <>
void execute(const LinearCrossEntropy& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        const RowFactor<Compute> rstd(operands, op.rstd, product.m);
        finish<Storage, Compute>(op, operands, product, [&](std::int64_t row) { return rstd[row]; });
    });
}

}  // namespace coda::cpu
