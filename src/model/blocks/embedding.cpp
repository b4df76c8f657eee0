#include "src/model/blocks/embedding.h"

namespace coda {

EmbeddingBlock::Parameters EmbeddingBlock::declare(ParameterPlan& plan, const ModelConfig& model) {
    return {plan.matrix({.name = "embedding",
                         .place = {.rows = padded_vocab(model), .cols = model.hidden_size},
                         .tensors = {{"model.embed_tokens.weight", model.vocab_size}}})};
}

EmbeddingBlock::EmbeddingBlock(const Parameters& parameters, const Weights& weights, const View& rows,
                               const ModelShape& s, const BlockBuffers& buffers)
    : eps_(s.eps),
      rows_(rows),
      gradient_(weights.projection(parameters.table).gradient()),
      out_{buffers.activation("embedded x", s.tokens, s.width), buffers.statistic("embedded rstd", 1, s.tokens)} {}

const Stream& EmbeddingBlock::forward(StepList& step, const BatchInputs& batch) {
    step("embed",
         Embed{.tokens = batch.tokens, .table = rows_, .x = write(out_.x), .rstd = write(out_.rstd), .eps = eps_});
    return out_;
}

void EmbeddingBlock::backward(StepList& step, const BatchInputs& batch, const View& dx) {
    step("embedding_grad", EmbedBackward{.tokens = batch.tokens, .dx = dx, .grad = write(gradient_), .scratch = {}});
}

void EmbeddingBlock::keep_rows(std::int64_t rows) {
    out_.x = out_.x.row_slice(0, rows);
    out_.rstd = narrowed(out_.rstd, rows);
}

}  // namespace coda
