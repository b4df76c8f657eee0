// A layer: x -> x', residual blocks one after the other in the layer's residual stream.
#pragma once

#include <variant>
#include <vector>

#include "src/model/blocks/attention.h"
#include "src/model/blocks/gelu_mlp.h"
#include "src/model/blocks/mlp.h"

namespace coda {

/// A variant, as schedules are built from copies of the model.
using Block = std::variant<AttentionBlock, MlpBlock, GeluMlpBlock>;

class Layer {
  public:
    struct Parameters {
        AttentionBlock::Parameters attention;
        std::variant<MlpBlock::Parameters, GeluMlpBlock::Parameters> mlp;
    };
    static Parameters declare(ParameterPlan& plan, const ModelConfig& model);

    Layer(const Parameters& parameters, const Weights& weights, const ModelShape& shape, Recompute recompute,
          const BlockBuffers& buffers);

    /// What the passes of generation read and write.
    void use_cache(const KeyValueCache& cache) { attention().use_cache(cache); }
    /// For a pass that no backward pass follows.
    void keep_nothing();
    /// Cuts the forward pass down to the first `rows` tokens.
    void keep_rows(std::int64_t rows);

    /// Returns x' with the 1/rms of its rows, which the next layer's norm or the final one applies.
    const Stream& forward(StepList& step, const BatchInputs& batch, const Stream& in);
    /// Does only as much of the forward pass as the layer's keys and values in the cache need.
    void fill_cache(StepList& step, const BatchInputs& batch, const Stream& in) {
        attention().fill_cache(step, batch, in);
    }

    /// Turns dx, the gradient of x', into the gradient of the input, in place, and computes the weights' gradients.
    /// `next` is where the layer before ends.
    void backward(StepList& step, const BatchInputs& batch, View& dx, Beta beta, const BranchEnd& next);

    const Stream& out() const;
    BranchEnd end();

  private:
    AttentionBlock& attention() { return std::get<AttentionBlock>(blocks_.front()); }

    std::vector<Block> blocks_;
};

}  // namespace coda
