// The MLP block: x' = x + y Wdownᵀ with y = silu(g) u and (g, u) = norm(x) Wgate_upᵀ, interleaved.
//
// Its backward pass assumes the identity of a projection after a norm (kernels/ops.h): the statistic of the norm is
// Σ g dg + u du, summed where dz is made.
#pragma once

#include "src/model/blocks/block_buffers.h"
#include "src/model/blocks/dx_copies.h"
#include "src/model/blocks/float8.h"
#include "src/model/blocks/shape.h"
#include "src/model/blocks/step_list.h"
#include "src/model/blocks/streams.h"
#include "src/model/blocks/weights.h"

namespace coda {

class MlpBlock {
  public:
    struct Parameters {
        PackedTensor norm, gate_up, down;  // (d), (2f, d), (d, f)
    };
    static Parameters declare(ParameterPlan& plan, const ModelConfig& model);

    /// Buffers of the backward pass, one for all layers.
    struct BackwardBuffers {
        View y;              // (M, f) recomputed; absent where the forward pass's is kept
        View z;              // (M, 2f) recomputed, likewise
        View partials, dot;  // Σ z dz per column tile and token, and per token
        View dgamma;         // partials of the norm's weight
        // FP8, by rows and transposed; absent without `f8`.
        View dx_f8, dx_f8_t;  // (M, d), (d, M)
        View dz_f8;           // (M, 2f); its transposed copy takes the place of z
        View x_f8_t;          // (d, M) of the normalised x, made anew; absent where the forward pass's is kept

        /// `f8`: whether there are layers that take FP8 operands.
        BackwardBuffers(const ModelShape& shape, Recompute recompute, bool f8, const BlockBuffers& buffers);
    };

    /// `float8`: its GEMMs with FP8 operands in passes that keep their activations.
    MlpBlock(const Parameters& parameters, const FlatSegments& segments, const ModelShape& shape, Recompute recompute,
             const Float8Layer& float8, const BlockBuffers& buffers);

    /// Returns x' with the 1/rms of its rows.
    const Stream& forward(StepList& step, const Stream& in, Keep keep);

    /// The FP8 copies of dx that its backward pass reads.
    DxCopies dx_copies(BackwardBuffers& buffers) {
        if (!down_f8_) return {};
        return {.tensor = &down_f8_.output_gradient, .rows = &buffers.dx_f8, .columns = &buffers.dx_f8_t};
    }

    /// From dx, the gradient of x', to that of `in`, in place, and those of the weights. `copies` are those of dx, and
    /// `next` those of the dx that it makes.
    void backward(StepList& step, const Stream& in, BackwardBuffers& buffers, View& dx, Beta beta, DxCopies& copies,
                  DxCopies& next);

    /// Cuts the forward pass down to the first `rows` tokens.
    void keep_rows(std::int64_t rows);

    const Stream& out() const { return out_; }

  private:
    void forward_f8(StepList& step, const Stream& in);
    void backward_f8(StepList& step, const Stream& in, BackwardBuffers& buffers, View& dx, Beta beta, DxCopies& copies,
                     DxCopies& next);

    ModelShape shape_;
    Recompute recompute_;
    Float8Gemm gate_up_f8_, down_f8_;
    Weight norm_, gate_up_, down_;
    View z_;  // (M, 2f) gate/up interleaved; absent under recompute "mlp", and with FP8
    View y_;  // (M, f): kept for the backward pass unless it is recomputed
    // FP8, by rows for the forward pass and transposed for the backward pass.
    View x_f8_, x_f8_t_;  // (M, d), (d, M) of the normalised x, the latter kept unless it is made anew
    View z_f8_t_;         // (2f, M), kept
    View y_f8_, y_f8_t_;  // (M, f), (f, M), the latter kept: z and y together take less than z in bf16
    Stream out_;          // x', 1/rms
    View square_;         // partials of the sum of squares of x'
};

}  // namespace coda
