// A layer: x -> x', attention and then the MLP, in the layer's residual stream.
#pragma once

#include "src/model/blocks/attention.h"
#include "src/model/blocks/mlp.h"

namespace coda {

class Layer {
  public:
    struct Parameters {
        AttentionBlock::Parameters attention;
        MlpBlock::Parameters mlp;
    };
    static Parameters declare(ParameterPlan& plan, const ModelConfig& model) {
        return {.attention = AttentionBlock::declare(plan, model), .mlp = MlpBlock::declare(plan, model)};
    }

    /// One for all layers.
    struct BackwardBuffers {
        AttentionBlock::BackwardBuffers attention;
        MlpBlock::BackwardBuffers mlp;

        BackwardBuffers(const ModelShape& shape, Recompute recompute, bool f8, const BlockBuffers& buffers)
            : attention(shape, recompute, f8, buffers), mlp(shape, recompute, f8, buffers) {}
    };

    Layer(const Parameters& parameters, const FlatSegments& segments, const ModelShape& shape, Recompute recompute,
          const Float8Layer& float8, const BlockBuffers& buffers)
        : attention_(parameters.attention, segments, shape, recompute, float8, buffers),
          mlp_(parameters.mlp, segments, shape, recompute, float8, buffers) {}

    /// What the passes of generation read and write.
    void use_cache(const KeyValueCache& cache) { attention_.use_cache(cache); }

    /// Returns x' with the 1/rms of its rows, which the next layer's norm or the final one applies.
    const Stream& forward(StepList& step, const BatchInputs& batch, const Stream& in, Keep keep) {
        return mlp_.forward(step, attention_.forward(step, batch, in, keep), keep);
    }

    /// The FP8 copies of dx that its backward pass reads.
    DxCopies dx_copies(BackwardBuffers& buffers) { return mlp_.dx_copies(buffers.mlp); }

    /// From dx, the gradient of x', to that of `in`, in place, and those of the weights. `copies` are those of dx, and
    /// `next` those of the dx that it makes.
    void backward(StepList& step, const BatchInputs& batch, const Stream& in, BackwardBuffers& buffers, View& dx,
                  Beta beta, DxCopies& copies, DxCopies& next) {
        DxCopies between = attention_.dx_copies(buffers.attention);
        mlp_.backward(step, attention_.out(), buffers.mlp, dx, beta, copies, between);
        attention_.backward(step, batch, in, buffers.attention, dx, beta, between, next);
    }

    /// Cuts the forward pass down to the first `rows` tokens.
    void keep_rows(std::int64_t rows) {
        attention_.keep_rows(rows);
        mlp_.keep_rows(rows);
    }

    const Stream& out() const { return mlp_.out(); }

  private:
    AttentionBlock attention_;
    MlpBlock mlp_;
};

}  // namespace coda
