#include "src/engine/tensor_stats.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "src/engine/feed.h"

namespace coda {

namespace {

constexpr std::string_view kDgrad = "_dgrad";

/// The matrix that a forward step multiplies by.
std::string matrix_of_forward(const Step& step) {
    return std::holds_alternative<LinearCrossEntropy>(step.op) ? "lm_head" : step.name;
}

/// "gate_up_dgrad": "gate_up".
std::string matrix_of_dgrad(const Step& step) {
    const std::string_view name = step.name;
    require(name.ends_with(kDgrad), "the tensors of step '", step.name, "' have no name");
    const std::string matrix(name.substr(0, name.size() - kDgrad.size()));
    return matrix == "head" ? "lm_head" : matrix;
}

using Tensors = std::vector<GemmTensor>;

Tensors forward_tensors(const Step& step, const View& input, const View& weight, const View& rstd) {
    if (step.phase != Phase::forward) return {};  // a recomputation: seen before
    const std::string matrix = matrix_of_forward(step);
    return {{.name = matrix + ".input", .view = input, .rows_times = rstd},
            {.name = matrix + ".weight", .view = weight}};
}

Tensors gradient_tensor(const Step& step, GemmTensor tensor) {
    tensor.name = matrix_of_dgrad(step) + ".output_gradient";
    return {std::move(tensor)};
}

/// One overload per op that multiplies by a weight, and one for the rest.
struct TensorsOf {
    const Step& step;

    Tensors operator()(const LinearRope& op) const { return forward_tensors(step, op.a, op.w, op.rstd); }
    Tensors operator()(const LinearSwiglu& op) const { return forward_tensors(step, op.a, op.w, op.rstd); }
    Tensors operator()(const LinearCrossEntropy& op) const { return forward_tensors(step, op.a, op.w, op.rstd); }
    Tensors operator()(const LinearResidualRms& op) const { return forward_tensors(step, op.a, op.w, {}); }
    Tensors operator()(const LinearSwigluBackward& op) const {
        return gradient_tensor(step, {.name = {}, .view = op.a});
    }
    Tensors operator()(const LinearHeadDot& op) const { return gradient_tensor(step, {.name = {}, .view = op.a}); }
    Tensors operator()(const LinearRmsBackward& op) const {
        if (op.scale) {
            return gradient_tensor(step, {.name = {}, .view = op.a, .rows_times = op.scale, .factor = op.alpha});
        }
        return gradient_tensor(step, {.name = {}, .view = op.a, .rows_over = op.rstd, .factor = op.alpha});
    }
    Tensors operator()(const Linear&) const { return {}; }  // logits of generation, of no training step
    template <class Other>
    Tensors operator()(const Other&) const {
        static_assert(!Other::traits.has(Trait::w), "an op that multiplies by a weight needs an overload");
        return {};
    }
};

/// Of every row; empty for an absent view.
std::vector<double> values_of(Executor& executor, const View& view) {
    return view ? download_vector(executor, view) : std::vector<double>{};
}

}  // namespace

std::vector<GemmTensor> gemm_tensors(const Step& step) { return std::visit(TensorsOf{step}, step.op); }

void TensorStats::add(const RowStats& row, std::int64_t columns, double factor) {
    elements += columns;
    if (factor == 0) {  // the row is 0 whatever is stored, as that of an ignored target is
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
    for (const GemmTensor& tensor : gemm_tensors(step)) {
        const std::vector<RowStats> rows = executor_.row_stats(tensor.view);
        const std::vector<double> times = values_of(executor_, tensor.rows_times);
        const std::vector<double> over = values_of(executor_, tensor.rows_over);
        const double whole = tensor.factor ? download_scalar(executor_, tensor.factor) : 1;
        TensorStats& stats = entry(step.layer, tensor.name);
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const double factor = whole * (times.empty() ? 1 : times[r]) / (over.empty() ? 1 : over[r]);
            stats.add(rows[r], tensor.view.cols, factor);
        }
    }
}

std::vector<TensorRecord> TensorWatch::take() {
    index_.clear();
    return std::exchange(records_, {});
}

}  // namespace coda
