#include "src/model/blocks/attention.h"

#include <algorithm>

#include "kernels/core/integers.h"
#include "src/model/blocks/norm_projection.h"

namespace coda {

AttentionBlock::Parameters AttentionBlock::declare(ParameterPlan& plan, const ModelConfig& model) {
    using Order = HfTensor::Order;
    const std::int64_t d = model.hidden_size, hd = model.head_dim;
    const std::int64_t q = model.num_attention_heads * hd, kv = model.num_key_value_heads * hd;
    Parameters parameters;
    parameters.norm = plan.norm(d, "input_layernorm.weight");
    parameters.qkv = plan.projection({.name = "qkv",
                                      .rows = q + 2 * kv,
                                      .cols = d,
                                      .tensors = {{"self_attn.q_proj.weight", q, Order::rotary_half, 0, hd},
                                                  {"self_attn.k_proj.weight", kv, Order::rotary_half, q, hd},
                                                  {"self_attn.v_proj.weight", kv, Order::plain, q + kv}}},
                                     parameters.norm);
    parameters.out = plan.matrix(d, q, {{"self_attn.o_proj.weight", d}});
    return parameters;
}

AttentionBlock::BackwardBuffers::BackwardBuffers(const ModelShape& s, const BlockBuffers& buffers)
    : dout(buffers.activation("attention output gradient", s.tokens, s.out_width)),
      delta(buffers.statistic("attention delta", s.heads, s.tokens)),
      dqkv(buffers.activation("qkv gradient", s.tokens, s.qkv_width)),
      partials(buffers.statistic("attention dot partials", s.heads + 2 * s.kv_heads, s.tokens)),
      dot(buffers.statistic("attention dot", 1, s.tokens)),
      dgamma(buffers.statistic("attention norm weight partials", ceil_div(s.tokens, LinearRmsBackward::kTileRows),
                               s.width)) {}

AttentionBlock::AttentionBlock(const Parameters& parameters, const FlatSegments& segments, const ModelShape& s,
                               bool deterministic, const BlockBuffers& buffers)
    : shape_(s),
      deterministic_(deterministic),
      norm_(segments.norm(parameters.norm)),
      qkv_weight_(segments.matrix(parameters.qkv)),
      out_weight_(segments.matrix(parameters.out)),
      qkv_(buffers.activation("qkv", s.tokens, s.qkv_width)),
      o_(buffers.activation("attention output", s.tokens, s.out_width)),
      lse_(buffers.statistic("attention lse", s.heads, s.tokens)),
      out_{buffers.activation("x after attention", s.tokens, s.width),
           buffers.statistic("rstd after attention", 1, s.tokens)},
      square_(
          buffers.statistic("squares after attention", ceil_div(s.width, LinearResidualRms::kTileColumns), s.tokens)) {}

void AttentionBlock::attend(StepList& step, const BatchInputs& batch) {
    const ModelShape& s = shape_;
    if (batch.lengths) {
        step("attention", DecodeAttention{.qkv = qkv_,
                                          .lengths = batch.lengths,
                                          .keys = write(cache_.keys),
                                          .values = write(cache_.values),
                                          .o = write(o_),
                                          .scratch = {},
                                          .context = cache_.context,
                                          .heads = s.heads,
                                          .kv_heads = s.kv_heads,
                                          .head_dim = s.head_dim});
        return;
    }
    if (batch.place) {
        step("store", StoreKeyValue{.qkv = qkv_,
                                    .place = batch.place,
                                    .keys = write(cache_.keys),
                                    .values = write(cache_.values),
                                    .context = cache_.context,
                                    .heads = s.heads,
                                    .kv_heads = s.kv_heads,
                                    .head_dim = s.head_dim});
    }
    step("attention", Attention{.qkv = qkv_,
                                .doc_start = batch.doc_start,
                                .o = write(o_),
                                .lse = write(lse_),
                                .seq_len = s.seq_len,
                                .heads = s.heads,
                                .kv_heads = s.kv_heads,
                                .head_dim = s.head_dim});
}

const Stream& AttentionBlock::forward(StepList& step, const BatchInputs& batch, const Stream& in) {
    const ModelShape& s = shape_;
    step("qkv", LinearRope{.a = in.x,
                           .w = qkv_weight_.value,
                           .rstd = in.rstd,
                           .positions = batch.positions,
                           .rope = batch.rope,
                           .out = write(qkv_),
                           .rotated = s.rotated,
                           .head_dim = s.head_dim});
    attend(step, batch);
    step("attn_out", LinearResidualRms{.a = o_,
                                       .w = out_weight_.value,
                                       .residual = in.x,
                                       .x = write(out_.x),
                                       .square = write(square_),
                                       .tile = LinearResidualRms::kTileColumns});
    step("rstd_mlp", FinishRstd{.square = square_, .rstd = write(out_.rstd), .width = s.width, .eps = s.eps});
    return out_;
}

void AttentionBlock::backward(StepList& step, const BatchInputs& batch, const Stream& in, BackwardBuffers& g, View& dx,
                              Beta beta) {
    const ModelShape& s = shape_;
    step("attn_out_dgrad", LinearHeadDot{.a = dx,
                                         .w = out_weight_.value,
                                         .o = o_,
                                         .out = write(g.dout),
                                         .delta = write(g.delta),
                                         .head_dim = s.head_dim});
    step("attn_out_wgrad",
         WeightGradient{
             .dy = dx, .x = o_, .gamma = {}, .alpha = {}, .grad = {write(out_weight_.gradient), beta}, .scratch = {}});
    step("attention_backward", AttentionBackward{.qkv = qkv_,
                                                 .o = {},
                                                 .dout = g.dout,
                                                 .lse = lse_,
                                                 .delta = g.delta,
                                                 .positions = batch.positions,
                                                 .rope = batch.rope,
                                                 .rstd = in.rstd,
                                                 .doc_start = batch.doc_start,
                                                 .dqkv = write(g.dqkv),
                                                 .dot = write(g.partials),
                                                 .scratch = {},
                                                 .seq_len = s.seq_len,
                                                 .heads = s.heads,
                                                 .kv_heads = s.kv_heads,
                                                 .head_dim = s.head_dim,
                                                 .deterministic = deterministic_});
    step("attention_dot", FinishRowSum{.partials = g.partials, .sum = write(g.dot)});
    build_norm_projection_backward(step, {"qkv_dgrad", "qkv_wgrad", "attn_norm_grad"}, in, g.dqkv, g.dot, qkv_weight_,
                                   norm_, g.dgamma, dx, beta);
}

void AttentionBlock::keep_rows(std::int64_t rows) {
    shape_.seq_len = std::min(shape_.seq_len, rows);
    for (View* matrix : {&qkv_, &o_, &out_.x}) *matrix = matrix->row_slice(0, rows);
    for (View* per_token : {&lse_, &out_.rstd, &square_}) *per_token = narrowed(*per_token, rows);
}

}  // namespace coda
