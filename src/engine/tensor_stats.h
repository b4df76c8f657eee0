// How large the numbers are that the GEMMs of a training run multiply.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/engine/executor.h"

namespace coda {

/// An operand of a matrix of the model: the input of its product, the weight as the product reads it (with the weight
/// of the norm before it in its columns), or the gradient of its output. The value is view x rows_times / rows_over x
/// factor, where an absent one is 1: ops store some tensors with a factor per row that is not the value's.
struct GemmTensor {
    std::string name;   // "gate_up.input", "gate_up.weight", "gate_up.output_gradient"
    View view;          // (rows, columns)
    View rows_times{};  // (1, rows)
    View rows_over{};   // (1, rows)
    View factor{};      // (1, 1)
};

/// Those that `step` reads as the first to do so: input and weight in the forward pass, the output's gradient where
/// dgrad reads it. They are as they were when the step is done. Empty for any other step.
std::vector<GemmTensor> gemm_tensors(const Step& step);

/// Statistics of a tensor over the micro-batches and row chunks of an optimizer step.
struct TensorStats {
    std::int64_t elements = 0, zeros = 0;
    double amax = 0;      // NaN where an element is NaN
    double square = 0;    // sum of squares
    double row_peak = 0;  // the largest amax / rms of a row that is not 0
    bool operator==(const TensorStats&) const = default;

    /// Adds a row of `columns` elements, each times `factor`.
    void add(const RowStats& row, std::int64_t columns, double factor);
    double rms() const;
};

/// A tensor of an optimizer step.
struct TensorRecord {
    int layer = -1;  // -1: the head
    std::string name;
    TensorStats stats;
};

/// Observes the passes of a training step.
class TensorWatch : public StepObserver {
  public:
    TensorWatch(Executor& executor, const Schedules& schedules) : executor_(executor), schedules_(schedules) {}

    bool reads_results() const override { return true; }
    void after(Pass pass, std::size_t index, double start_us, double ms) override;

    /// Of what was observed since the last call, in the order of the schedule.
    std::vector<TensorRecord> take();

  private:
    TensorStats& entry(int layer, const std::string& name);

    Executor& executor_;
    const Schedules& schedules_;
    std::vector<TensorRecord> records_;
    std::map<std::pair<int, std::string>, std::size_t> index_;
};

}  // namespace coda
