// The head: logits = norm(x) Wᵀ and their cross entropy. In training it runs its own backward pass chunk by chunk of
// rows, so that with several chunks the exponentials of all logits never exist at once.
//
// Its backward pass assumes the identity of a projection after a norm (kernels/ops.h): the statistic of the final norm
// is Σ l g over the vocabulary, of the logits l and their gradient g. Where the final norm is a LayerNorm, it is a
// separate pass before the head (FinalNorm), and the head's matrix follows no norm.
#pragma once

#include <optional>

#include "src/model/blocks/final_norm.h"
#include "src/model/tensors/block_buffers.h"
#include "src/model/tensors/parameter_plan.h"
#include "src/model/tensors/shape.h"
#include "src/model/tensors/step_list.h"
#include "src/model/tensors/streams.h"
#include "src/model/tensors/weights.h"

namespace coda {

class HeadBlock {
  public:
    struct Parameters {
        std::size_t matrix;                      // number of a matrix: (Vp, d), the embedding's own when tied
        std::optional<NormPlaces> final_norm{};  // of a LayerNorm, whose bias no copy of the matrix can carry
    };
    /// `embedding`: number of the embedding's matrix.
    static Parameters declare(ParameterPlan& plan, const ModelConfig& model, std::size_t embedding);

    /// What the host reads, as HostViews has it.
    struct Results {
        View loss, losses, val_loss;
    };

    HeadBlock(const Parameters& parameters, const Weights& weights, const ModelShape& shape, std::int64_t chunks,
              const BlockBuffers& buffers);

    /// Loss of a micro-batch, the gradient dx of the residual stream `in`, and the weights' gradients. `last`: where
    /// the last layer ends.
    void train(StepList& step, const BatchInputs& batch, const Stream& in, View& dx, Beta beta, const BranchEnd& last);

    /// Only the loss.
    void evaluate(StepList& step, const BatchInputs& batch, const Stream& in);

    /// Logits of every row of `in`, and the next token of each sequence.
    void decode(StepList& step, const Stream& in, SequenceRows& rows);

    const Projection& matrix() const { return matrix_; }
    const Results& results() const { return results_; }

  private:
    struct Chunk {
        std::int64_t first_row, rows;
        std::int64_t first_tile, tiles;  // of the final norm's partials
    };

    /// `keeps`: what the backward pass reads.
    void chunk_loss(StepList& step, const BatchInputs& batch, const Stream& in, const Chunk& chunk, bool keeps);
    /// dx: the gradient of `in`. dx_sum: partials of Σ dx of all chunks, may be absent.
    void chunk_backward(StepList& step, const BatchInputs& batch, const Stream& in, const Chunk& chunk, const View& dx,
                        const View& dx_sum, Beta beta);

    ModelShape shape_;
    Projection matrix_;
    std::vector<Chunk> chunks_;
    View exponentials_;  // (rows of a chunk, Vp), shared by all chunks
    View sums_;          // (tiles, 2 rows of a chunk), likewise
    View n_;             // (M, d) normalised activation times its rows' scale
    std::optional<FinalNorm> final_norm_;
    View dgamma_;        // (tiles of all chunks, d) partials of the norm's weight
    View dx_sum_;        // likewise, of the bias with which the last layer ends
    View target_logit_;  // (1, M)
    View scale_, dot_;   // (1, M) 1 / Σ e, and Σ l g
    View flags_;         // (1, rows of a chunk) rows whose loss and gradient ExactCrossEntropy makes
    Results results_;
};

}  // namespace coda
