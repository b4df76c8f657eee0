// The LayerNorm before the head: n = rstd x ⊙ gamma + beta, with x of mean 0 in every row.
//
// The head's matrix does not carry it, as it carries the weight of an RMSNorm: the loss measures logits from the
// target's logit, so every op of the loss would need beta. Two passes over an activation, once in a model, cost little.
#pragma once

#include "src/model/tensors/block_buffers.h"
#include "src/model/tensors/matrix.h"
#include "src/model/tensors/projection.h"
#include "src/model/tensors/shape.h"
#include "src/model/tensors/step_list.h"
#include "src/model/tensors/streams.h"
#include "src/model/tensors/weights.h"

namespace coda {

class FinalNorm {
  public:
    FinalNorm(const NormPlaces& places, const Weights& weights, const ModelShape& shape, const BlockBuffers& buffers);

    /// n, with no factor of its rows. Step final_norm.
    Stream forward(StepList& step, const Stream& in);

    /// The gradient of n, which the head's backward pass writes.
    View& dn() { return dn_; }
    /// dx from dn, and the gradients of gamma, beta and the bias with which the last layer ends. Steps
    /// final_norm_backward and final_norm_grad.
    void backward(StepList& step, const Stream& in, View& dx, Beta beta, const BranchEnd& last);

  private:
    Weights::Vectors gamma_, beta_;
    View n_, dn_;                   // (M, d)
    View dgamma_, dbeta_, dx_sum_;  // (tiles, d) partials
};

}  // namespace coda
