// The optimizer of the oracle: AdamW with decoupled decay and clipping by the global norm, in double precision, over
// named tensors. It was written independently of the program's flat-segment AdamW.
#pragma once

#include <cstdint>

#include "tests/oracle/textbook.h"

namespace coda::textbook {

struct AdamWSettings {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;   // matrices only, including the embedding; norms do not decay
    double max_grad_norm = 1.0;  // 0: no clipping
};

/// sqrt of the sum of squares over all tensors.
double global_norm(const Weights& tensors);

/// Step t, from 1:  g = gradient min(1, max_grad_norm / norm);  w -= learning_rate weight_decay w  (matrices);
/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g²;
/// w -= learning_rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps).
class AdamW {
  public:
    explicit AdamW(const AdamWSettings& settings) : settings_(settings) {}

    /// One step in place; returns the gradient's global norm before clipping. Throws std::out_of_range for a weight
    /// without gradient.
    double step(Weights& weights, const Weights& gradients, double learning_rate);

  private:
    AdamWSettings settings_;
    std::int64_t steps_ = 0;
    Weights first_moment_;
    Weights second_moment_;
};

}  // namespace coda::textbook
