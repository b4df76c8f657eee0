// The attention block: x' = x + o Woᵀ with o = attention(rope(norm(x) Wqkvᵀ)).
//
// Its backward pass assumes the identity of a projection after a norm (kernels/ops.h): the statistic of the norm is
// Σ z dz over the q, k and v heads, summed per head where dqkv is made.
#pragma once

#include "src/model/blocks/block_buffers.h"
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

        BackwardBuffers(const ModelShape& shape, const BlockBuffers& buffers);
    };

    /// `deterministic`: the backward pass gives the same bits every time.
    AttentionBlock(const Parameters& parameters, const FlatSegments& segments, const ModelShape& shape,
                   bool deterministic, const BlockBuffers& buffers);

    /// What the passes of generation read and write.
    void use_cache(const KeyValueCache& cache) { cache_ = cache; }

    /// Returns x' with the 1/rms of its rows. batch.place: keys and values are stored in the cache. batch.lengths:
    /// every row is the newest token of a sequence of the cache.
    const Stream& forward(StepList& step, const BatchInputs& batch, const Stream& in);

    /// From dx, the gradient of x', to that of `in`, in place, and those of the weights.
    void backward(StepList& step, const BatchInputs& batch, const Stream& in, BackwardBuffers& buffers, View& dx,
                  Beta beta);

    /// Cuts the forward pass down to the first `rows` tokens.
    void keep_rows(std::int64_t rows);

    const Stream& out() const { return out_; }

  private:
    void attend(StepList& step, const BatchInputs& batch);

    ModelShape shape_;
    bool deterministic_;
    Weight norm_, qkv_weight_, out_weight_;
    View qkv_;     // (M, Nq) after RoPE
    View o_;       // (M, H hd)
    View lse_;     // (H, M)
    Stream out_;   // x', 1/rms
    View square_;  // partials of the sum of squares of x'
    KeyValueCache cache_;
};

}  // namespace coda
