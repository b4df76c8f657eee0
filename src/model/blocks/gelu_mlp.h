// The MLP block without a gate: x' = x + y Wdownᵀ + bdown with y = gelu(norm(x) Wupᵀ + bup), the biases optional.
//
// Its backward pass assumes the identity of a projection after a norm (kernels/ops.h): the statistic of the norm is
// Σ (z - bup) dz, summed where dz is made.
#pragma once

#include "kernels/math/gelu.h"
#include "src/model/tensors/block_buffers.h"
#include "src/model/tensors/parameter_plan.h"
#include "src/model/tensors/shape.h"
#include "src/model/tensors/step_list.h"
#include "src/model/tensors/streams.h"
#include "src/model/tensors/weights.h"

namespace coda {

class GeluMlpBlock {
  public:
    struct Parameters {
        std::size_t up, down;  // numbers of matrices: (f, d), (d, f)
        Gelu kind;
    };
    static Parameters declare(ParameterPlan& plan, const ModelConfig& model);

    /// Its matrices take storage only.
    GeluMlpBlock(const Parameters& parameters, const Weights& weights, const ModelShape& shape, Recompute recompute,
                 const BlockBuffers& buffers);

    /// For a pass that no backward pass follows: it does not keep z.
    void keep_nothing() { keeps_z_ = false; }
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
    /// z and y, of which either may be absent.
    void project(StepList& step, const char* name, const View& z, const View& y);

    ModelShape shape_;
    Projection up_, down_;
    Gelu kind_;
    bool keeps_z_;          // whether the forward pass does
    Stream out_;            // x', 1/rms
    View square_;           // partials of the sum of squares of x'
    Activation x_, z_, y_;  // (M, d) the input, (M, f) before GELU, (M, f)
    // For the backward pass.
    Activation dx_, dz_;  // (M, d); (M, f) in z's memory
    View partials_;       // Σ (z - bup) dz per column tile and token
    NormPartials norm_;
    View dbias_;  // partials of bup
};

}  // namespace coda
