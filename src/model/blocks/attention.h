// The attention block: x' = x + o Woᵀ + bo with o = attention(rope(norm(x) Wqkvᵀ + b)), the biases b and bo optional.
// Instead of b, q and k heads may have a norm of their own before RoPE.
//
// Its backward pass assumes the identity of a projection after a norm (kernels/ops.h): the statistic of the norm is
// Σ z dz over the q, k and v heads, with z and dz as before a norm of heads. It is summed per head where dqkv is made,
// less the bias' part.
#pragma once

#include <optional>

#include "src/model/tensors/block_buffers.h"
#include "src/model/tensors/parameter_plan.h"
#include "src/model/tensors/shape.h"
#include "src/model/tensors/step_list.h"
#include "src/model/tensors/streams.h"
#include "src/model/tensors/weights.h"

namespace coda {

class AttentionBlock {
  public:
    struct Parameters {
        std::size_t qkv, out;              // numbers of matrices: (Nq, d), (d, H hd)
        std::optional<PackedTensor> gain;  // (2, hd): of the norms of q and k heads
    };
    static Parameters declare(ParameterPlan& plan, const ModelConfig& model);

    AttentionBlock(const Parameters& parameters, const Weights& weights, const ModelShape& shape, Recompute recompute,
                   const BlockBuffers& buffers);

    /// What the passes of generation read and write.
    void use_cache(const KeyValueCache& cache) { cache_ = cache; }
    /// Called for a pass that no backward pass follows: it reads storage.
    void keep_nothing();
    /// Cuts the forward pass down to the first `rows` tokens.
    void keep_rows(std::int64_t rows);

    /// Returns x' with the 1/rms of its rows. batch.place: keys and values are stored in the cache. batch.lengths:
    /// attention reads and extends the cache, a row per sequence.
    const Stream& forward(StepList& step, const BatchInputs& batch, const Stream& in);
    /// Does only as much of the forward pass as the keys and values in the cache need, for the last layer of a prefill.
    void fill_cache(StepList& step, const BatchInputs& batch, const Stream& in) { project(step, batch, in); }

    /// Turns dx, the gradient of x', into the gradient of `in`, in place, and computes the weights' gradients. `next`
    /// is where the block before ends.
    void backward(StepList& step, const BatchInputs& batch, View& dx, Beta beta, const BranchEnd& next);

    const Stream& out() const { return out_; }
    BranchEnd end() { return {&dx_, &attn_out_}; }

  private:
    /// q, k and v.
    void project(StepList& step, const BatchInputs& batch, const Stream& in);
    void attend(StepList& step, const BatchInputs& batch);

    ModelShape shape_;
    Projection qkv_, attn_out_;
    KeyValueCache cache_;    // of the passes of generation
    View heads_;             // (M, Nq) q, k and v after RoPE
    View gain_, pre_, rho_;  // of the norms of q and k heads: weights (2, hd), (M, (H + Hk) hd) before, (H + Hk, M)
    View lse_;               // (H, M) log-sum-exp of the scores
    View next_tile_;         // Attention's counter of tiles
    Stream out_;             // x', 1/rms
    View square_;            // partials of the sum of squares of x'
    Activation x_, o_;       // (M, d) the input, (M, H hd) attention's output
    // For the backward pass.
    Activation dx_, dqkv_;  // (M, d), (M, Nq)
    View dout_, delta_;     // (M, H hd), (H, M)
    View partials_;         // Σ z dz per head and token
    NormPartials norm_;
    View dbias_;  // partials of the bias of q, k and v
    View dgain_;  // partials of the norms of q heads, then of k heads
    View q_gain_gradient_, k_gain_gradient_;
};

}  // namespace coda
