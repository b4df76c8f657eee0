#include "src/engine/tensor_stats.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/engine/feed.h"

namespace coda {

namespace {

/// The GEMM is a dgrad: it multiplies a gradient by W.
template <class Op>
bool is_dgrad(const Op& op) {
    if constexpr (Op::traits.has(Trait::layout)) return op.layout == WeightLayout::in_out;
    return false;
}

/// The tensors of an op that multiplies `a` by a weight matrix.
template <class Op>
std::vector<GemmTensor> tensors_of(const Step& step, const Op& op, const Weights& weights) {
    const bool dgrad = is_dgrad(op);
    if (!dgrad && step.phase != Phase::forward) return {};  // a recomputation: the forward pass has read them
    const Projection* projection = weights.projection_of(op.w);
    require(projection != nullptr, "step '", step.name, "' multiplies by no matrix of the model");
    // The matrix behind the layers is the head, also where it is the embedding's.
    const std::string matrix = step.layer < 0 ? "lm_head" : projection->name();
    TensorScalars of_a;
    if constexpr (Op::traits.has(Trait::scalars_of_a)) of_a = op.scalars_of_a();
    GemmTensor a{.name = matrix + (dgrad ? ".output_gradient" : ".input"),
                 .view = op.a,
                 .scalars = of_a,
                 .projection = projection};
    if (dgrad) return {a};
    return {a, {.name = matrix + ".weight", .view = op.w, .projection = projection}};
}

/// The value of every row; empty for an absent view.
std::vector<double> values_of(Executor& executor, const View& view) {
    return view ? download_vector(executor, view) : std::vector<double>{};
}

}  // namespace

std::vector<GemmTensor> gemm_tensors(const Step& step, const Weights& weights) {
    return std::visit(
        [&]<class Op>(const Op& op) -> std::vector<GemmTensor> {
            if constexpr (Op::traits.has(Trait::w)) return tensors_of(step, op, weights);
            return {};
        },
        step.op);
}

std::vector<double> row_factors(Executor& executor, const TensorScalars& scalars, std::int64_t rows) {
    const std::vector<double> times = values_of(executor, scalars.times), over = values_of(executor, scalars.over);
    const double whole = scalars.factor ? download_scalar(executor, scalars.factor) : 1;
    std::vector<double> factors(static_cast<std::size_t>(rows));
    for (std::size_t r = 0; r < factors.size(); ++r)
        factors[r] = whole * (times.empty() ? 1 : times[r]) / (over.empty() ? 1 : over[r]);
    return factors;
}

void TensorStats::add(const RowStats& row, std::int64_t columns, double factor) {
    elements += columns;
    if (factor == 0) {  // the row is 0 whatever is stored, as for an ignored target
        zeros += columns;
        return;
    }
    const double top = row.amax * std::abs(factor), row_square = row.square * factor * factor;
    zeros += row.zeros;
    square += row_square;
    if (top > amax || std::isnan(top)) amax = top;
    const double row_rms = std::sqrt(row_square / static_cast<double>(columns));
    if (row_rms > 0) row_peak = std::max(row_peak, top / row_rms);
}

double TensorStats::rms() const { return elements > 0 ? std::sqrt(square / static_cast<double>(elements)) : 0; }

TensorStats& TensorWatch::entry(int layer, const std::string& name) {
    const auto [found, is_new] = index_.try_emplace({layer, name}, records_.size());
    if (is_new) records_.push_back({.layer = layer, .name = name, .stats = {}});
    return records_[found->second].stats;
}

void TensorWatch::after(Pass pass, std::size_t index, double, double) {
    const Step& step = schedules_[pass][index];
    for (const GemmTensor& tensor : gemm_tensors(step, schedules_.weights)) {
        const std::vector<RowStats> rows = executor_.row_stats(tensor.view);
        const std::vector<double> factors =
            row_factors(executor_, tensor.scalars, static_cast<std::int64_t>(rows.size()));
        TensorStats& stats = entry(step.layer, tensor.name);
        for (std::size_t r = 0; r < rows.size(); ++r) {
            stats.add(rows[r], tensor.view.cols, factors[r]);
        }
    }
}

std::vector<TensorRecord> TensorWatch::take() {
    index_.clear();
    return std::exchange(records_, {});
}

}  // namespace coda
