// The backward pass as a list of operations. dx is one buffer, updated in place: weight gradients that read a value of
// it come before the op that makes the next value. dz and dqkv carry the rstd of the norm before them, so that weight
// gradients read the residual stream where the forward pass left it.
#include "src/model/activations.h"

namespace coda {

namespace {

void build_mlp_backward(MicroBatch& batch, StepList& step, std::size_t l, Beta beta) {
    const LayerWeights& w = batch.weights.layers[l];
    LayerWeights& grads = batch.grads.layers[l];
    LayerActivations& act = batch.act.layers[l];
    Gradients& g = batch.grad;

    const Recompute recompute = batch.options.recompute;
    if (recompute == Recompute::mlp) {
        step("gate_up_recompute",
             LinearSwiglu{.a = act.x_mid, .w = w.gate_up, .rstd = act.rstd_mlp, .z = write(g.z), .y = {}});
    }
    View& z = recompute == Recompute::mlp ? g.z : act.z;
    const View saved = z;
    const bool keeps_y = recompute == Recompute::none;
    step("down_dgrad", LinearSwigluBackward{.a = g.dx,
                                            .w = w.down,
                                            .z = saved,
                                            .rstd = act.rstd_mlp,
                                            .dz = write(z),
                                            .y = keeps_y ? View{} : write(g.y),
                                            .dot = write(g.mlp_partials),
                                            .tile = LinearSwigluBackward::kTileColumns});
    step("mlp_dot", FinishRowSum{.partials = g.mlp_partials, .sum = write(g.mlp_dot)});
    step("down_wgrad", WeightGradient{.dy = g.dx,
                                      .x = keeps_y ? act.y : g.y,
                                      .gamma = {},
                                      .alpha = {},
                                      .grad = {write(grads.down), beta},
                                      .scratch = g.weight_scratch});
    step("gate_up_dgrad", LinearRmsBackward{.a = z,
                                            .w = w.gate_up,
                                            .x = act.x_mid,
                                            .rstd = act.rstd_mlp,
                                            .dot = g.mlp_dot,
                                            .alpha = {},
                                            .scale = {},
                                            .dx = {write(g.dx), Beta::accumulate},
                                            .n = {},
                                            .dgamma = write(g.dgamma),
                                            .tile = LinearRmsBackward::kTileRows});
    step("gate_up_wgrad", WeightGradient{.dy = z,
                                         .x = act.x_mid,
                                         .gamma = w.mlp_norm,
                                         .alpha = {},
                                         .grad = {write(grads.gate_up), beta},
                                         .scratch = g.weight_scratch});
    step("mlp_norm_grad",
         FinishColumnSum{.partials = g.dgamma, .gamma = w.mlp_norm, .grad = {write(grads.mlp_norm), beta}});
}

void build_attention_backward(MicroBatch& batch, StepList& step, std::size_t l, Beta beta) {
    const ModelShape& s = batch.shape;
    const LayerWeights& w = batch.weights.layers[l];
    LayerWeights& grads = batch.grads.layers[l];
    const LayerActivations& act = batch.act.layers[l];
    Gradients& g = batch.grad;

    step("attn_out_dgrad", LinearHeadDot{.a = g.dx,
                                         .w = w.attn_out,
                                         .o = act.o,
                                         .out = write(g.dout),
                                         .delta = write(g.delta),
                                         .head_dim = s.head_dim});
    step("attn_out_wgrad", WeightGradient{.dy = g.dx,
                                          .x = act.o,
                                          .gamma = {},
                                          .alpha = {},
                                          .grad = {write(grads.attn_out), beta},
                                          .scratch = g.weight_scratch});
    step("attention_backward", AttentionBackward{.qkv = act.qkv,
                                                 .o = {},
                                                 .dout = g.dout,
                                                 .lse = act.lse,
                                                 .delta = g.delta,
                                                 .positions = batch.host.positions,
                                                 .rope = batch.host.rope,
                                                 .rstd = act.rstd_attn,
                                                 .doc_start = batch.host.doc_start,
                                                 .dqkv = write(g.dqkv),
                                                 .dot = write(g.attention_partials),
                                                 .scratch = g.attention_scratch,
                                                 .seq_len = s.seq_len,
                                                 .heads = s.heads,
                                                 .kv_heads = s.kv_heads,
                                                 .head_dim = s.head_dim,
                                                 .deterministic = batch.options.deterministic});
    step("attention_dot", FinishRowSum{.partials = g.attention_partials, .sum = write(g.attention_dot)});
    step("qkv_dgrad", LinearRmsBackward{.a = g.dqkv,
                                        .w = w.qkv,
                                        .x = act.x,
                                        .rstd = act.rstd_attn,
                                        .dot = g.attention_dot,
                                        .alpha = {},
                                        .scale = {},
                                        .dx = {write(g.dx), Beta::accumulate},
                                        .n = {},
                                        .dgamma = write(g.dgamma),
                                        .tile = LinearRmsBackward::kTileRows});
    step("qkv_wgrad", WeightGradient{.dy = g.dqkv,
                                     .x = act.x,
                                     .gamma = w.attn_norm,
                                     .alpha = {},
                                     .grad = {write(grads.qkv), beta},
                                     .scratch = g.weight_scratch});
    step("attn_norm_grad",
         FinishColumnSum{.partials = g.dgamma, .gamma = w.attn_norm, .grad = {write(grads.attn_norm), beta}});
}

}  // namespace

void build_backward(MicroBatch& batch, StepList& step, Beta beta) {
    for (std::size_t l = batch.act.layers.size(); l-- > 0;) {
        step.enter(Phase::backward, static_cast<int>(l));
        build_mlp_backward(batch, step, l, beta);
        build_attention_backward(batch, step, l, beta);
    }
    step.enter(Phase::backward, -1);
    // A tied head's weight gradient has already been written into the embedding's; an untied one starts from zero.
    View& grad = batch.tied() ? batch.grads.head : batch.grads.embedding;
    if (!batch.tied() && beta == Beta::overwrite) step("zero_embedding_grad", Zero{.out = write(grad)});
    step("embedding_grad", EmbedBackward{.tokens = batch.host.tokens,
                                         .dx = batch.grad.dx,
                                         .grad = write(grad),
                                         .scratch = batch.grad.embed_scratch});
}

}  // namespace coda
