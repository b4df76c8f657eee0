// What GPTQ knows of a matrix's inputs: Σ x xᵀ over the tokens of a calibration.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/engine/executor.h"
#include "src/engine/tensor_stats.h"
#include "src/model/master_weights.h"

namespace coda {

/// Observes Pass::evaluate. For every matrix of a layer that GPTQ rounds, the host sums x xᵀ over its inputs, a (K, K)
/// in fp32. llama8b needs 33 GB. As a Hugging Face matrix expects it, an input includes the weight of the norm before
/// the matrix.
class InputProducts : public StepObserver {
  public:
    /// `layout`, the executor and the schedules must outlive it; `weights` are those in the executor.
    InputProducts(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                  const MasterWeights& weights);

    bool reads_results() const override { return true; }
    void after(Pass pass, std::size_t index, double start_us, double ms) override;

    /// Of matrix number `matrix` of the layout: the upper triangle of (K, K). Empty for one that is not rounded.
    std::span<const float> of(std::size_t matrix) const { return products_[matrix]; }
    /// Frees it.
    void release(std::size_t matrix) { products_[matrix] = {}; }

  private:
    /// (rows, cols), with the weight of the norm before the matrix; `norm` is empty without one.
    /// The parameters of the norm before a matrix; empty where there is none.
    struct Norm {
        std::vector<float> gamma, beta;
    };
    std::vector<float> input_of(const GemmTensor& input, const Norm& norm);

    Executor& executor_;
    const Schedules& schedules_;
    std::vector<std::vector<float>> products_;
    std::vector<Norm> norms_;
};

}  // namespace coda
