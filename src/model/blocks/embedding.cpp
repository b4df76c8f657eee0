#include "src/model/blocks/embedding.h"

namespace coda {

EmbeddingBlock::Parameters EmbeddingBlock::declare(ParameterPlan& plan, const ModelConfig& model) {
    const std::int64_t positions = model.max_position_embeddings;
    Parameters parameters{plan.matrix({.name = "embedding",
                                       .place = {.rows = padded_vocab(model), .cols = model.hidden_size},
                                       .tensors = {{"model.embed_tokens.weight", model.vocab_size}}})};
    if (model.position_embeddings == PositionEmbeddings::learned)
        parameters.positions = plan.matrix({.name = "position_embedding",
                                            .place = {.rows = positions, .cols = model.hidden_size},
                                            .tensors = {{"model.embed_positions.weight", positions}}});
    parameters.centred = model.norm == NormKind::layernorm;
    return parameters;
}

EmbeddingBlock::EmbeddingBlock(const Parameters& parameters, const Weights& weights, const View& rows,
                               const ModelShape& s, const BlockBuffers& buffers)
    : eps_(s.eps),
      centred_(parameters.centred),
      rows_(rows),
      gradient_(weights.projection(parameters.table).gradient()),
      out_{buffers.activation("embedded x", s.tokens, s.width), buffers.statistic("embedded rstd", 1, s.tokens)} {
    if (!parameters.positions) return;
    const Projection& positions = weights.projection(*parameters.positions);
    position_rows_ = positions.value();
    position_gradient_ = positions.gradient();
}

const Stream& EmbeddingBlock::forward(StepList& step, const BatchInputs& batch) {
    step("embed", Embed{.tokens = batch.tokens,
                        .table = rows_,
                        .positions = position_rows_ ? batch.positions : View{},
                        .position_table = position_rows_,
                        .x = write(out_.x),
                        .rstd = write(out_.rstd),
                        .eps = eps_,
                        .centred = centred_});
    return out_;
}

void EmbeddingBlock::backward(StepList& step, const BatchInputs& batch, View& dx, Beta beta) {
    if (centred_) step("centre_dx", CentreRows{.dx = write(dx)});
    step("embedding_grad", EmbedBackward{.tokens = batch.tokens, .dx = dx, .grad = write(gradient_), .scratch = {}});
    if (!position_gradient_) return;
    if (beta == Beta::overwrite) step("zero_position_grad", Zero{.out = write(position_gradient_)});
    step("position_grad",
         EmbedBackward{.tokens = batch.positions, .dx = dx, .grad = write(position_gradient_), .scratch = {}});
}

}  // namespace coda
