// The forward pass as a list of operations (CODA's schedule: norms, residuals, RoPE and SwiGLU live in GEMM epilogues).
#include "src/model/activations.h"

namespace coda {

namespace {

void build_layer(MicroBatch& batch, StepList& step, std::size_t l, bool keep) {
    const ModelShape& s = batch.shape;
    const HostViews& host = batch.host;
    const LayerWeights& w = batch.weights.layers[l];
    const bool last = l + 1 == batch.act.layers.size();
    const bool keep_z = keep && batch.options.recompute != Recompute::mlp;
    LayerActivations& act = batch.act.layers[l];
    View& x_next = last ? batch.act.x_final : batch.act.layers[l + 1].x;
    View& rstd_next = last ? batch.act.rstd_final : batch.act.layers[l + 1].rstd_attn;
    const std::int64_t tile = LinearResidualRms::kTileColumns;

    step("qkv", LinearRope{.a = act.x,
                           .w = w.qkv,
                           .rstd = act.rstd_attn,
                           .positions = host.positions,
                           .rope = host.rope,
                           .out = write(act.qkv),
                           .rotated = s.rotated,
                           .head_dim = s.head_dim});
    step("attention", Attention{.qkv = act.qkv,
                                .doc_start = host.doc_start,
                                .o = write(act.o),
                                .lse = write(act.lse),
                                .seq_len = s.seq_len,
                                .heads = s.heads,
                                .kv_heads = s.kv_heads,
                                .head_dim = s.head_dim});
    step("attn_out", LinearResidualRms{.a = act.o,
                                       .w = w.attn_out,
                                       .residual = act.x,
                                       .x = write(act.x_mid),
                                       .square = write(act.square_attn),
                                       .tile = tile});
    step("rstd_mlp",
         FinishRstd{.square = act.square_attn, .rstd = write(act.rstd_mlp), .width = s.width, .eps = s.eps});
    step("gate_up", LinearSwiglu{.a = act.x_mid,
                                 .w = w.gate_up,
                                 .rstd = act.rstd_mlp,
                                 .z = keep_z ? write(act.z) : View{},
                                 .y = write(act.y)});
    step("down", LinearResidualRms{.a = act.y,
                                   .w = w.down,
                                   .residual = act.x_mid,
                                   .x = write(x_next),
                                   .square = write(act.square_mlp),
                                   .tile = tile});
    step("rstd_next", FinishRstd{.square = act.square_mlp, .rstd = write(rstd_next), .width = s.width, .eps = s.eps});
}

/// Elements [first, first + number) of a (1, M) vector.
View part_of(const View& vector, std::int64_t first, std::int64_t number) {
    View slice = vector;
    slice.offset += first * size_of(vector.dtype);
    slice.cols = slice.ld = number;
    return slice;
}
View rows_of(const HeadChunk& chunk, const View& vector) { return part_of(vector, chunk.first_row, chunk.rows); }

/// Exponentials of the logits (only where the backward pass needs them) and loss of one chunk of rows.
void build_chunk_loss(MicroBatch& batch, StepList& step, HeadChunk& chunk, bool keep) {
    const auto rows = [&](const View& vector) { return rows_of(chunk, vector); };
    Activations& act = batch.act;
    const View x = act.x_final.row_slice(chunk.first_row, chunk.rows);
    step("target_logit", TargetLogit{.a = x,
                                     .table = batch.weights.head.row_slice(0, batch.shape.vocab),
                                     .rstd = rows(act.rstd_final),
                                     .targets = rows(batch.host.targets),
                                     .target_logit = rows(act.target_logit)});
    step("logits", LinearCrossEntropy{.a = x,
                                      .w = batch.weights.head,
                                      .rstd = rows(act.rstd_final),
                                      .target_logit = rows(act.target_logit),
                                      .exponentials = keep ? write(chunk.exponentials) : View{},
                                      .sums = write(chunk.sums),
                                      .vocab = batch.shape.vocab,
                                      .tile = LinearCrossEntropy::kTileColumns});
    step("loss", FinishCrossEntropy{.sums = chunk.sums,
                                    .target_logit = rows(act.target_logit),
                                    .targets = rows(batch.host.targets),
                                    .exponentials = keep ? write(chunk.exponentials) : View{},
                                    .scale = keep ? rows(act.head_scale) : View{},
                                    .dot = keep ? rows(act.head_dot) : View{},
                                    .loss = rows(act.losses)});
}

/// The head's dgrad and wgrad of one chunk. Only the first chunk may overwrite the head's gradient.
void build_chunk_backward(MicroBatch& batch, StepList& step, HeadChunk& chunk, Beta beta) {
    const auto rows = [&](const View& vector) { return rows_of(chunk, vector); };
    Activations& act = batch.act;
    step("head_dgrad", LinearRmsBackward{.a = chunk.exponentials,
                                         .w = batch.weights.head,
                                         .x = act.x_final.row_slice(chunk.first_row, chunk.rows),
                                         .rstd = rows(act.rstd_final),
                                         .dot = rows(act.head_dot),
                                         .alpha = batch.host.alpha,
                                         .scale = rows(act.head_scale),
                                         .dx = {batch.grad.dx.row_slice(chunk.first_row, chunk.rows), Beta::overwrite},
                                         .n = batch.grad.n.row_slice(chunk.first_row, chunk.rows),
                                         .dgamma = write(chunk.dgamma),
                                         .tile = LinearRmsBackward::kTileRows});
    step("head_wgrad", WeightGradient{.dy = chunk.exponentials,
                                      .x = batch.grad.n.row_slice(chunk.first_row, chunk.rows),
                                      .gamma = batch.weights.final_norm,
                                      .alpha = batch.host.alpha,
                                      .grad = {write(batch.grads.head), beta},
                                      .scratch = batch.grad.weight_scratch});
}

}  // namespace

void build_forward(MicroBatch& batch, StepList& step, bool keep) {
    LayerActivations& first = batch.act.layers.front();
    step.enter(Phase::forward, -1);
    step("embed", Embed{.tokens = batch.host.tokens,
                        .table = batch.weights.embedding,
                        .x = write(first.x),
                        .rstd = write(first.rstd_attn),
                        .eps = batch.shape.eps});
    for (std::size_t l = 0; l < batch.act.layers.size(); ++l) {
        step.enter(Phase::forward, static_cast<int>(l));
        build_layer(batch, step, l, keep);
    }
}

void build_head(MicroBatch& batch, StepList& step, Beta beta) {
    // Row slices of these are written chunk by chunk; each row holds its first value.
    for (View* view : {&batch.act.target_logit, &batch.act.losses, &batch.act.head_scale, &batch.act.head_dot,
                       &batch.grad.dx, &batch.grad.n}) {
        write(*view);
    }
    for (std::size_t c = 0; c < batch.act.chunks.size(); ++c) {
        HeadChunk& chunk = batch.act.chunks[c];
        if (c > 0) {  // the buffers go on with the values of the chunk before
            chunk.exponentials.version = batch.act.chunks[c - 1].exponentials.version;
            chunk.sums.version = batch.act.chunks[c - 1].sums.version;
        }
        step.enter(Phase::forward, -1);
        build_chunk_loss(batch, step, chunk, true);
        step.enter(Phase::backward, -1);
        build_chunk_backward(batch, step, chunk, c == 0 ? beta : Beta::accumulate);
    }
    step.enter(Phase::forward, -1);
    step("total_loss",
         ReduceLoss{.loss = batch.act.losses, .alpha = batch.host.alpha, .total = {write(batch.host.loss), beta}});
    step.enter(Phase::backward, -1);
    write(batch.act.final_dgamma);
    step("final_norm_grad", FinishColumnSum{.partials = batch.act.final_dgamma,
                                            .gamma = batch.weights.final_norm,
                                            .grad = {write(batch.grads.final_norm), beta}});
}

void build_head_evaluation(MicroBatch& batch, StepList& step) {
    for (View* view : {&batch.act.target_logit, &batch.act.losses}) write(*view);
    step.enter(Phase::forward, -1);
    for (std::size_t c = 0; c < batch.act.chunks.size(); ++c) {
        HeadChunk& chunk = batch.act.chunks[c];
        if (c > 0) chunk.sums.version = batch.act.chunks[c - 1].sums.version;
        build_chunk_loss(batch, step, chunk, false);
    }
    step("total_loss", ReduceLoss{.loss = batch.act.losses,
                                  .alpha = batch.host.alpha,
                                  .total = {write(batch.host.val_loss), Beta::overwrite}});
}

void build_head_sample(MicroBatch& batch, StepList& step) {
    const std::int64_t last = batch.shape.tokens - 1;
    step.enter(Phase::forward, -1);
    step("logits", Linear{.a = batch.act.x_final.row_slice(last, 1),
                          .w = batch.weights.head,
                          .rstd = part_of(batch.act.rstd_final, last, 1),
                          .out = {write(batch.host.logits), Beta::overwrite}});
}

}  // namespace coda
