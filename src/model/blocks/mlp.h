// The MLP block: x' = x + y Wdownᵀ with y = silu(g) u and (g, u) = norm(x) Wgate_upᵀ, interleaved.
//
// Its backward pass assumes the identity of a projection after a norm (kernels/ops.h): the statistic of the norm is
// Σ g dg + u du, summed where dz is made.
#pragma once

#include "src/model/tensors/block_buffers.h"
#include "src/model/tensors/parameter_plan.h"
#include "src/model/tensors/shape.h"
#include "src/model/tensors/step_list.h"
#include "src/model/tensors/streams.h"
#include "src/model/tensors/weights.h"

namespace coda {

class MlpBlock {
  public:
    struct Parameters {
        std::size_t gate_up, down;  // numbers of matrices: (2f, d), (d, f)
    };
    static Parameters declare(ParameterPlan& plan, const ModelConfig& model);

    MlpBlock(const Parameters& parameters, const Weights& weights, const ModelShape& shape, Recompute recompute,
             const BlockBuffers& buffers);

    /// For a pass that no backward pass follows: it reads storage and does not keep z.
    void keep_nothing();
    /// Cuts the forward pass down to the first `rows` tokens.
    void keep_rows(std::int64_t rows);

    /// Returns x' with the 1/rms of its rows.
    const Stream& forward(StepList& step, const BatchInputs& batch, const Stream& in);

    /// Turns dx, the gradient of x', into the gradient of the input, in place, and computes the weights' gradients.
    /// `next` is where the block before ends.
    void backward(StepList& step, const BatchInputs& batch, View& dx, Beta beta, const BranchEnd& next);

    const Stream& out() const { return out_; }
    BranchEnd end() { return {&dx_, &down_}; }

  private:
    ModelShape shape_;
    Projection gate_up_, down_;
    bool keeps_z_;          // whether the forward pass does
    Stream out_;            // x', 1/rms
    View square_;           // partials of the sum of squares of x'
    Activation x_, z_, y_;  // (M, d) the input, (M, 2f) gate/up interleaved, (M, f)
    // For the backward pass.
    Activation dx_, dz_;  // (M, d); (M, 2f) in z's memory
    View partials_;       // Σ z dz per column tile and token
    NormPartials norm_;
};

}  // namespace coda
