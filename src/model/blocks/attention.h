// The attention block: x' = x + o Woᵀ with o = attention(rope(norm(x) Wqkvᵀ)).
//
// Its backward pass assumes the identity of a projection after a norm (kernels/ops.h): the statistic of the norm is
// Σ z dz over the q, k and v heads, summed per head where dqkv is made.
#pragma once

#include "src/model/blocks/block_buffers.h"
#include "src/model/blocks/dx_copies.h"
#include "src/model/blocks/float8.h"
#include "src/model/blocks/shape.h"
#include "src/model/blocks/step_list.h"
#include "src/model/blocks/streams.h"
#include "src/model/blocks/weights.h"

namespace coda {

class AttentionBlock {
  public:
    struct Parameters {
        PackedTensor norm, qkv, out;  // (d), (Nq, d), (d, H hd)
    };
    static Parameters declare(ParameterPlan& plan, const ModelConfig& model);

    /// Buffers of the backward pass, one for all layers.
    struct BackwardBuffers {
        View dout, delta;    // (M, H hd), (H, M)
        View dqkv;           // (M, Nq)
        View partials, dot;  // Σ z dz per head and token, and per token
        View dgamma;         // partials of the norm's weight
        // FP8, by rows and transposed; absent without `f8`.
        View dx_f8, dx_f8_t;      // (M, d), (d, M)
        View dqkv_f8, dqkv_f8_t;  // (M, Nq), (Nq, M)
        View x_f8_t, o_f8_t;      // (d, M), (H hd, M) made anew; absent where the forward pass's are kept

        /// `f8`: whether there are layers that take FP8 operands.
        BackwardBuffers(const ModelShape& shape, Recompute recompute, bool f8, const BlockBuffers& buffers);
    };

    /// `float8`: its GEMMs with FP8 operands in passes that keep their activations.
    AttentionBlock(const Parameters& parameters, const FlatSegments& segments, const ModelShape& shape,
                   Recompute recompute, const Float8Layer& float8, const BlockBuffers& buffers);

    /// What the passes of generation read and write.
    void use_cache(const KeyValueCache& cache) { cache_ = cache; }

    /// Returns x' with the 1/rms of its rows. batch.place: keys and values are stored in the cache. batch.lengths:
    /// every row is the newest token of a sequence of the cache.
    const Stream& forward(StepList& step, const BatchInputs& batch, const Stream& in, Keep keep);

    /// The FP8 copies of dx that its backward pass reads.
    DxCopies dx_copies(BackwardBuffers& buffers) {
        if (!out_f8_) return {};
        return {.tensor = &out_f8_.output_gradient, .rows = &buffers.dx_f8, .columns = &buffers.dx_f8_t};
    }

    /// From dx, the gradient of x', to that of `in`, in place, and those of the weights. `copies` are those of dx, and
    /// `next` those of the dx that it makes.
    void backward(StepList& step, const BatchInputs& batch, const Stream& in, BackwardBuffers& buffers, View& dx,
                  Beta beta, DxCopies& copies, DxCopies& next);

    /// Cuts the forward pass down to the first `rows` tokens.
    void keep_rows(std::int64_t rows);

    const Stream& out() const { return out_; }

  private:
    void project(StepList& step, const BatchInputs& batch, const Stream& in, bool f8);
    void attend(StepList& step, const BatchInputs& batch);
    void close(StepList& step, const Stream& in, bool f8);
    void backward_of_out(StepList& step, BackwardBuffers& buffers, const View& dx, Beta beta);
    void backward_of_qkv(StepList& step, const Stream& in, BackwardBuffers& buffers, View& dx, Beta beta,
                         DxCopies& next);

    ModelShape shape_;
    Float8Gemm qkv_f8_, out_f8_;
    Weight norm_, qkv_weight_, out_weight_;
    View qkv_;  // (M, Nq) after RoPE
    View o_;    // (M, H hd)
    View lse_;  // (H, M)
    // FP8, by rows for the forward pass and transposed for the wgrad, the latter kept under recompute "none".
    View x_f8_, x_f8_t_;  // (M, d), (d, M) of the normalised x
    View o_f8_, o_f8_t_;  // (M, H hd), (H hd, M)
    Stream out_;          // x', 1/rms
    View square_;         // partials of the sum of squares of x'
    KeyValueCache cache_;
};

}  // namespace coda
