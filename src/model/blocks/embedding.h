// The embedding: x = E[token], or E[token] + P[position] with learned positions, the start of the residual stream. In a
// model with LayerNorm each row's mean is taken out of it.
#pragma once

#include <optional>

#include "src/model/tensors/block_buffers.h"
#include "src/model/tensors/parameter_plan.h"
#include "src/model/tensors/shape.h"
#include "src/model/tensors/step_list.h"
#include "src/model/tensors/streams.h"
#include "src/model/tensors/weights.h"

namespace coda {

class EmbeddingBlock {
  public:
    struct Parameters {
        std::size_t table;                       // number of a matrix: (Vp, d)
        std::optional<std::size_t> positions{};  // likewise, of learned positions: (max_position_embeddings, d)
        bool centred = false;
    };
    static Parameters declare(ParameterPlan& plan, const ModelConfig& model);

    /// `rows`: what tokens are looked up in, (any, d) of the storage or the master type.
    EmbeddingBlock(const Parameters& parameters, const Weights& weights, const View& rows, const ModelShape& shape,
                   const BlockBuffers& buffers);

    /// Returns x with the 1/rms of its rows.
    const Stream& forward(StepList& step, const BatchInputs& batch);

    /// Adds dx's rows to their tokens' rows of the gradient. It starts from zero or, where the head is tied, from
    /// `gradient`, which the head has written there.
    void zero_gradient(StepList& step) { step("zero_embedding_grad", Zero{.out = write(gradient_)}); }
    void continue_gradient(const View& gradient) { gradient_ = gradient; }
    /// The gradient of learned positions begins from zero where `beta` overwrites.
    void backward(StepList& step, const BatchInputs& batch, View& dx, Beta beta);

    /// Cuts the forward pass down to the first `rows` tokens.
    void keep_rows(std::int64_t rows) { out_.keep_rows(rows); }

    const Stream& out() const { return out_; }

  private:
    double eps_;
    bool centred_;
    View rows_, gradient_;
    View position_rows_, position_gradient_;  // absent without learned positions
    Stream out_;
};

}  // namespace coda
