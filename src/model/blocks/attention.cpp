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

AttentionBlock::BackwardBuffers::BackwardBuffers(const ModelShape& s, Recompute recompute, bool f8,
                                                 const BlockBuffers& buffers)
    : dout(buffers.activation("attention output gradient", s.tokens, s.out_width)),
      delta(buffers.statistic("attention delta", s.heads, s.tokens)),
      dqkv(buffers.activation("qkv gradient", s.tokens, s.qkv_width)),
      partials(buffers.statistic("attention dot partials", s.heads + 2 * s.kv_heads, s.tokens)),
      dot(buffers.statistic("attention dot", 1, s.tokens)),
      dgamma(buffers.statistic("attention norm weight partials", ceil_div(s.tokens, LinearRmsBackward::kTileRows),
                               s.width)) {
    if (!f8) return;
    dx_f8 = buffers.f8("attention dx f8", s.tokens, s.width);
    dx_f8_t = buffers.f8_transposed("attention dx f8 transposed", s.tokens, s.width);
    dqkv_f8 = buffers.f8("qkv gradient f8", s.tokens, s.qkv_width, kQkvGradient);
    dqkv_f8_t = buffers.f8_transposed("qkv gradient f8 transposed", s.tokens, s.qkv_width, kQkvGradient);
    if (recompute == Recompute::none) return;
    x_f8_t = buffers.f8_transposed("attention input f8 transposed", s.tokens, s.width);
    o_f8_t = buffers.f8_transposed("attention output f8 transposed", s.tokens, s.out_width);
}

AttentionBlock::AttentionBlock(const Parameters& parameters, const FlatSegments& segments, const ModelShape& s,
                               Recompute recompute, const Float8Layer& float8, const BlockBuffers& buffers)
    : shape_(s),
      qkv_f8_(float8.qkv),
      out_f8_(float8.attn_out),
      norm_(segments.norm(parameters.norm)),
      qkv_weight_(segments.matrix(parameters.qkv)),
      out_weight_(segments.matrix(parameters.out)),
      qkv_(buffers.activation("qkv", s.tokens, s.qkv_width)),
      o_(buffers.activation("attention output", s.tokens, s.out_width)),
      lse_(buffers.statistic("attention lse", s.heads, s.tokens)),
      out_{buffers.activation("x after attention", s.tokens, s.width),
           buffers.statistic("rstd after attention", 1, s.tokens)},
      square_(
          buffers.statistic("squares after attention", ceil_div(s.width, LinearResidualRms::kTileColumns), s.tokens)) {
    if (qkv_f8_) x_f8_ = buffers.f8("attention input f8", s.tokens, s.width);
    if (out_f8_) o_f8_ = buffers.f8("attention output f8", s.tokens, s.out_width);
    if (recompute != Recompute::none) return;
    if (qkv_f8_) x_f8_t_ = buffers.f8_transposed("attention input f8 transposed", s.tokens, s.width);
    if (out_f8_) o_f8_t_ = buffers.f8_transposed("attention output f8 transposed", s.tokens, s.out_width);
}

void AttentionBlock::project(StepList& step, const BatchInputs& batch, const Stream& in, bool f8) {
    if (f8) {
        step("attn_input_f8", QuantiseF8{.x = in.x,
                                         .rstd = in.rstd,
                                         .scale = qkv_f8_.input.scale,
                                         .rows = write(x_f8_),
                                         .columns = x_f8_t_ ? write(x_f8_t_) : View{},
                                         .amax = {}});
    } else {
        qkv_weight_.make(step, "qkv_weights");
    }
    step("qkv", LinearRope{.a = f8 ? x_f8_ : in.x,
                           .w = f8 ? qkv_f8_.rows : qkv_weight_.value,
                           .rstd = f8 ? View{} : in.rstd,
                           .scale = f8 ? qkv_f8_.forward : View{},
                           .positions = batch.positions,
                           .rope = batch.rope,
                           .out = write(qkv_),
                           .rotated = shape_.rotated,
                           .head_dim = shape_.head_dim});
}

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

void AttentionBlock::close(StepList& step, const Stream& in, bool f8) {
    if (f8) {
        step("attn_o_f8", QuantiseF8{.x = o_,
                                     .rstd = {},
                                     .scale = out_f8_.input.scale,
                                     .rows = write(o_f8_),
                                     .columns = o_f8_t_ ? write(o_f8_t_) : View{},
                                     .amax = write(out_f8_.input.amax)});
    } else {
        out_weight_.make(step, "attn_out_weights");
    }
    step("attn_out", LinearResidualRms{.a = f8 ? o_f8_ : o_,
                                       .w = f8 ? out_f8_.rows : out_weight_.value,
                                       .scale = f8 ? out_f8_.forward : View{},
                                       .residual = in.x,
                                       .x = write(out_.x),
                                       .square = write(square_),
                                       .tile = LinearResidualRms::kTileColumns});
    step("rstd_mlp", FinishRstd{.square = square_, .rstd = write(out_.rstd), .width = shape_.width, .eps = shape_.eps});
}

const Stream& AttentionBlock::forward(StepList& step, const BatchInputs& batch, const Stream& in, Keep keep) {
    const bool keeps = keep == Keep::activations;
    project(step, batch, in, keeps && qkv_f8_);
    attend(step, batch);
    close(step, in, keeps && out_f8_);
    return out_;
}

void AttentionBlock::backward_of_out(StepList& step, BackwardBuffers& g, const View& dx, Beta beta) {
    const bool f8 = static_cast<bool>(out_f8_);
    step("attn_out_dgrad", LinearHeadDot{.a = f8 ? g.dx_f8 : dx,
                                         .w = f8 ? out_f8_.columns : out_weight_.value,
                                         .scale = f8 ? out_f8_.dgrad : View{},
                                         .o = o_,
                                         .out = write(g.dout),
                                         .delta = write(g.delta),
                                         .head_dim = shape_.head_dim});
    if (f8 && g.o_f8_t) {
        step(
            "attn_o_f8_t",
            QuantiseF8{
                .x = o_, .rstd = {}, .scale = out_f8_.input.scale, .rows = {}, .columns = write(g.o_f8_t), .amax = {}});
    }
    const View& o_t = g.o_f8_t ? g.o_f8_t : o_f8_t_;
    step("attn_out_wgrad", WeightGradient{.dy = f8 ? g.dx_f8_t : dx,
                                          .x = f8 ? o_t : o_,
                                          .gamma = {},
                                          .alpha = f8 ? out_f8_.wgrad : View{},
                                          .grad = {write(out_weight_.gradient), beta},
                                          .scratch = {}});
}

void AttentionBlock::backward_of_qkv(StepList& step, const Stream& in, BackwardBuffers& g, View& dx, Beta beta,
                                     DxCopies& next) {
    const NormProjectionSteps names{"qkv_dgrad", "qkv_wgrad", "attn_norm_grad"};
    if (!qkv_f8_) {
        return build_norm_projection_backward(step, names, in, g.dqkv, g.dot, qkv_weight_, norm_, g.dgamma, dx, beta);
    }
    step("dqkv_f8", QuantiseF8{.x = g.dqkv,
                               .rstd = {},
                               .scale = qkv_f8_.output_gradient.scale,
                               .rows = write(g.dqkv_f8),
                               .columns = write(g.dqkv_f8_t),
                               .amax = write(qkv_f8_.output_gradient.amax)});
    if (g.x_f8_t) transpose_input(step, "attn_input_f8_t", in, qkv_f8_, g.x_f8_t);
    const View& x_t = g.x_f8_t ? g.x_f8_t : x_f8_t_;
    build_norm_projection_backward(step, names, in, {.gemm = qkv_f8_, .dz = g.dqkv_f8, .dz_t = g.dqkv_f8_t, .x_t = x_t},
                                   g.dot, qkv_weight_, norm_, g.dgamma, dx, beta, next);
}

void AttentionBlock::backward(StepList& step, const BatchInputs& batch, const Stream& in, BackwardBuffers& g, View& dx,
                              Beta beta, DxCopies& copies, DxCopies& next) {
    const ModelShape& s = shape_;
    copies.complete(step, "attn_dx_f8", dx);
    backward_of_out(step, g, dx, beta);
    step("attention_backward", AttentionBackward{.qkv = qkv_,
                                                 .o = {},
                                                 .dout = g.dout,
                                                 .lse = lse_,
                                                 .delta = g.delta,
                                                 .positions = batch.positions,
                                                 .rope = batch.rope,
                                                 // The FP8 wgrad reads x normalised, so dqkv is without its rstd.
                                                 .rstd = qkv_f8_ ? View{} : in.rstd,
                                                 .doc_start = batch.doc_start,
                                                 .dqkv = write(g.dqkv),
                                                 .dot = write(g.partials),
                                                 .scratch = {},
                                                 .seq_len = s.seq_len,
                                                 .heads = s.heads,
                                                 .kv_heads = s.kv_heads,
                                                 .head_dim = s.head_dim});
    step("attention_dot", FinishRowSum{.partials = g.partials, .sum = write(g.dot)});
    backward_of_qkv(step, in, g, dx, beta, next);
}

void AttentionBlock::keep_rows(std::int64_t rows) {
    shape_.seq_len = std::min(shape_.seq_len, rows);
    for (View* matrix : {&qkv_, &o_, &out_.x}) *matrix = matrix->row_slice(0, rows);
    for (View* per_token : {&lse_, &out_.rstd, &square_}) *per_token = narrowed(*per_token, rows);
}

}  // namespace coda
