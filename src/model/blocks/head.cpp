#include "src/model/blocks/head.h"

#include <algorithm>

#include "kernels/core/integers.h"

namespace coda {

HeadBlock::Parameters HeadBlock::declare(ParameterPlan& plan, const ModelConfig& model, std::size_t embedding) {
    const std::int64_t d = model.hidden_size;
    const bool layernorm = model.norm == NormKind::layernorm;
    const NormPlaces norm = plan.norm(d, "model.norm", layernorm);
    Parameters parameters{embedding};
    if (!model.tie_word_embeddings)
        parameters.matrix = plan.matrix({.name = "head",
                                         .place = {.rows = padded_vocab(model), .cols = d},
                                         .tensors = {{"lm_head.weight", model.vocab_size}}});
    if (layernorm)
        parameters.final_norm = norm;
    else
        plan.put_norm_before(parameters.matrix, norm);
    return parameters;
}

HeadBlock::HeadBlock(const Parameters& parameters, const Weights& weights, const ModelShape& s, std::int64_t chunks,
                     const BlockBuffers& buffers)
    : shape_(s), matrix_(weights.projection(parameters.matrix)) {
    // Whole GEMM tiles per chunk if the rows are enough for that.
    const std::int64_t row_tile = LinearRmsBackward::kTileRows;
    const std::int64_t even = ceil_div(s.tokens, chunks);
    const std::int64_t rows = std::min(s.tokens, even >= row_tile ? round_up(even, row_tile) : even);
    std::int64_t tiles = 0;
    for (std::int64_t first = 0; first < s.tokens; first += rows) {
        const std::int64_t number = std::min(rows, s.tokens - first);
        chunks_.push_back(
            {.first_row = first, .rows = number, .first_tile = tiles, .tiles = ceil_div(number, row_tile)});
        tiles += chunks_.back().tiles;
    }
    exponentials_ = buffers.activation("exponentials", rows, s.padded_vocab);
    sums_ =
        buffers.statistic("sums of exponentials", ceil_div(s.padded_vocab, LinearCrossEntropy::kTileColumns), 2 * rows);
    if (parameters.final_norm) final_norm_.emplace(*parameters.final_norm, weights, s, buffers);
    n_ = buffers.activation("normalised activation", s.tokens, s.width);
    dgamma_ = buffers.statistic("final norm partials", tiles, s.width);
    dx_sum_ = buffers.statistic("final dx sum partials", tiles, s.width);
    target_logit_ = buffers.statistic("target logits", 1, s.tokens);
    scale_ = buffers.statistic("head scale", 1, s.tokens);
    dot_ = buffers.statistic("head dot", 1, s.tokens);
    flags_ = buffers.flags("flagged rows", rows);

    // Persistent: the host reads them after a pass, when nothing else may have taken their place.
    const auto result = [&](const char* name, DType dtype, std::int64_t columns) {
        return buffers.persistent(name, MemorySegment::inputs, dtype, 1, columns);
    };
    const Precision& precision = buffers.precision();
    results_ = {.loss = result("loss", precision.statistic, 1),
                .losses = result("token losses", precision.statistic, s.tokens),
                .val_loss = result("validation loss", precision.statistic, 1)};
}

void HeadBlock::chunk_loss(StepList& step, const BatchInputs& batch, const Stream& in, const Chunk& chunk, bool keeps) {
    const auto rows = [&](const View& vector) {
        return vector ? part_of(vector, chunk.first_row, chunk.rows) : View{};
    };
    const View x = in.x.row_slice(chunk.first_row, chunk.rows), rstd = rows(in.rstd);
    const Factor w = matrix_.forward(step);
    const View table = w.row_slice(0, shape_.vocab);
    const View sums = narrowed(write(sums_), 2 * chunk.rows);
    const auto written_exponentials = [&] { return keeps ? write(exponentials_).row_slice(0, chunk.rows) : View{}; };
    step(
        "target_logit",
        TargetLogit{
            .a = x, .table = table, .rstd = rstd, .targets = rows(batch.targets), .target_logit = rows(target_logit_)});
    step("logits", LinearCrossEntropy{.a = x,
                                      .w = w,
                                      .rstd = rstd,
                                      .target_logit = rows(target_logit_),
                                      .exponentials = written_exponentials(),
                                      .sums = sums,
                                      .vocab = shape_.vocab,
                                      .tile = LinearCrossEntropy::kTileColumns});
    // Row slices of the same vectors: these ops make the first and the second value of each element (train, evaluate).
    const auto first = [&](View vector) {
        --vector.version;
        return rows(vector);
    };
    const View flags = narrowed(write(flags_), chunk.rows);
    step("loss", FinishCrossEntropy{.sums = sums,
                                    .target_logit = rows(target_logit_),
                                    .targets = rows(batch.targets),
                                    .exponentials = written_exponentials(),
                                    .scale = keeps ? first(scale_) : View{},
                                    .dot = keeps ? first(dot_) : View{},
                                    .loss = first(results_.losses),
                                    .flags = flags});
    step("exact_loss", ExactCrossEntropy{.a = x,
                                         .table = table,
                                         .rstd = rstd,
                                         .targets = rows(batch.targets),
                                         .flags = flags,
                                         .exponentials = written_exponentials(),
                                         .scale = keeps ? rows(scale_) : View{},
                                         .dot = keeps ? rows(dot_) : View{},
                                         .loss = rows(results_.losses),
                                         .scratch = {}});
}

void HeadBlock::chunk_backward(StepList& step, const BatchInputs& batch, const Stream& in, const Chunk& chunk,
                               const View& dx, const View& dx_sum, Beta beta) {
    const auto rows = [&](const View& vector) { return part_of(vector, chunk.first_row, chunk.rows); };
    const auto tiles = [&](const View& partials) { return partials.row_slice(chunk.first_tile, chunk.tiles); };
    const bool normed = static_cast<bool>(in.rstd);
    const View exponentials = exponentials_.row_slice(0, chunk.rows);
    const View n = n_.row_slice(chunk.first_row, chunk.rows);
    step("head_dgrad", LinearRmsBackward{.a = exponentials,
                                         .w = matrix_.dgrad(),
                                         .x = in.x.row_slice(chunk.first_row, chunk.rows),
                                         .rstd = normed ? rows(in.rstd) : View{},
                                         .dot = normed ? rows(dot_) : View{},
                                         .alpha = batch.alpha,
                                         .scale = rows(scale_),
                                         .dx = {dx.row_slice(chunk.first_row, chunk.rows), Beta::overwrite},
                                         .n = n,
                                         .dgamma = normed ? tiles(dgamma_) : View{},
                                         .dx_sum = dx_sum ? tiles(dx_sum) : View{},
                                         .tile = LinearRmsBackward::kTileRows});
    step("head_wgrad", WeightGradient{.dy = exponentials,
                                      .x = n,
                                      .gamma = matrix_.gamma(),
                                      .alpha = batch.alpha,
                                      .grad = matrix_.gradient(beta),
                                      .scratch = {}});
}

void HeadBlock::train(StepList& step, const BatchInputs& batch, const Stream& in, View& dx, Beta beta,
                      const BranchEnd& last) {
    step.enter(Phase::forward, -1);
    const Stream read = final_norm_ ? final_norm_->forward(step, in) : in;
    View& read_dx = final_norm_ ? final_norm_->dn() : dx;
    const bool sums_dx = !final_norm_ && last.has_bias();
    // Row slices of these are written chunk by chunk; each row holds its first value, and in views that
    // ExactCrossEntropy may replace, the second.
    for (View* view : {&target_logit_, &results_.losses, &scale_, &dot_, &n_, &dgamma_, &dx_sum_, &read_dx})
        write(*view);
    for (View* view : {&results_.losses, &scale_, &dot_}) write(*view);
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
        step.enter(Phase::forward, -1);
        chunk_loss(step, batch, read, chunks_[c], true);
        step.enter(Phase::backward, -1);
        chunk_backward(step, batch, read, chunks_[c], read_dx, sums_dx ? dx_sum_ : View{},
                       c == 0 ? beta : Beta::accumulate);
    }
    step.enter(Phase::forward, -1);
    step("total_loss",
         ReduceLoss{.loss = results_.losses, .alpha = batch.alpha, .total = {write(results_.loss), beta}});
    step.enter(Phase::backward, -1);
    if (final_norm_) return final_norm_->backward(step, in, dx, beta, last);
    FinishColumnSums sums;
    matrix_.add_norm_sum(sums, dgamma_, beta);
    if (sums_dx) last.closing->add_bias_sum(sums, dx_sum_, beta);
    step("final_norm_grad", sums);
}

void HeadBlock::evaluate(StepList& step, const BatchInputs& batch, const Stream& in) {
    for (View* view : {&target_logit_, &results_.losses, &results_.losses}) write(*view);
    step.enter(Phase::forward, -1);
    const Stream read = final_norm_ ? final_norm_->forward(step, in) : in;
    for (const Chunk& chunk : chunks_) chunk_loss(step, batch, read, chunk, false);
    step("total_loss",
         ReduceLoss{
             .loss = results_.losses, .alpha = batch.alpha, .total = {write(results_.val_loss), Beta::overwrite}});
}

void HeadBlock::decode(StepList& step, const Stream& in, SequenceRows& rows) {
    step.enter(Phase::forward, -1);
    const Stream read = final_norm_ ? final_norm_->forward(step, in) : in;
    step("logits",
         Linear{
             .a = read.x, .w = matrix_.forward(step), .rstd = read.rstd, .out = {write(rows.logits), Beta::overwrite}});
    View logits = rows.logits;  // without the padding of the vocabulary
    logits.cols = shape_.vocab;
    step("choose", ChooseToken{.options = rows.options,
                               .logits = logits,
                               .end_tokens = rows.end_tokens,
                               .limits = rows.limits,
                               .seen = write(rows.seen),
                               .lengths = write(rows.lengths),
                               .positions = write(rows.positions),
                               .state = write(rows.state),
                               .token = write(rows.token),
                               .status = write(rows.status)});
}

}  // namespace coda
