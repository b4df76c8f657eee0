// How large the numbers are that the GEMMs of a training run multiply.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/engine/executor.h"

namespace coda {

/// An operand of a weight matrix's GEMMs: the input, the weight as the GEMM reads it (with the weight of the norm
/// before it in its columns), or the gradient of the output.
struct GemmTensor {
    std::string name;                        // "gate_up.input", "gate_up.weight", "gate_up.output_gradient"
    View view;                               // (rows, columns)
    TensorScalars scalars{};                 // that turn the view into the tensor
    const Projection* projection = nullptr;  // the matrix
};

/// What multiplies each row of a view to make it the tensor.
std::vector<double> row_factors(Executor& executor, const TensorScalars& scalars, std::int64_t rows);

/// The tensors that `step` is the first to read: input and weight in the forward pass, and the output's gradient in a
/// dgrad. They still have their values when the step is done. Empty for any other step. `weights`: of its schedules.
std::vector<GemmTensor> gemm_tensors(const Step& step, const Weights& weights);

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

    /// The records of what was observed since the last call, in the order of the schedule.
    std::vector<TensorRecord> take();

  private:
    TensorStats& entry(int layer, const std::string& name);

    Executor& executor_;
    const Schedules& schedules_;
    std::vector<TensorRecord> records_;
    std::map<std::pair<int, std::string>, std::size_t> index_;
};

}  // namespace coda
