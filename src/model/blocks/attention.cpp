#include "src/model/blocks/attention.h"

#include <algorithm>

#include "kernels/core/integers.h"

namespace coda {

AttentionBlock::Parameters AttentionBlock::declare(ParameterPlan& plan, const ModelConfig& model) {
    using Order = HfTensor::Order;
    const std::int64_t d = model.hidden_size, hd = model.head_dim;
    const std::int64_t q = model.num_attention_heads * hd, kv = model.num_key_value_heads * hd;
    const bool layernorm = model.norm == NormKind::layernorm;
    const NormPlaces norm = plan.norm(d, "input_layernorm", layernorm);
    Parameters parameters;
    // The gradients of q, k and v share a scale, and q's and k's can be far smaller than v's: e5m2 reaches farther down
    // than e4m3.
    parameters.qkv = plan.matrix({.name = "qkv",
                                  .place = {.rows = q + 2 * kv, .cols = d},
                                  .norm = norm,
                                  .has_bias = model.attention_bias,
                                  .gradient = DType::f8e5m2,
                                  .tensors = {{"self_attn.q_proj.weight", q, Order::rotary_half, 0, hd},
                                              {"self_attn.k_proj.weight", kv, Order::rotary_half, q, hd},
                                              {"self_attn.v_proj.weight", kv, Order::plain, q + kv}}});
    if (model.qk_norm) parameters.gain = plan.head_norms(hd, {"self_attn.q_norm.weight", "self_attn.k_norm.weight"});
    parameters.out = plan.matrix({.name = "attn_out",
                                  .place = {.rows = d, .cols = q},
                                  .has_bias = model.attention_out_bias,
                                  .centred = layernorm,
                                  .deviation = branch_deviation(model),
                                  .tensors = {{"self_attn.o_proj.weight", d}}});
    return parameters;
}

AttentionBlock::AttentionBlock(const Parameters& parameters, const Weights& weights, const ModelShape& s,
                               Recompute recompute, const BlockBuffers& buffers)
    : shape_(s),
      qkv_(weights.projection(parameters.qkv)),
      attn_out_(weights.projection(parameters.out)),
      heads_(buffers.activation("qkv", s.tokens, s.qkv_width)),
      lse_(buffers.statistic("attention lse", s.heads, s.tokens)),
      next_tile_(buffers.counter("next attention tile")),
      out_{buffers.activation("x after attention", s.tokens, s.width),
           buffers.statistic("rstd after attention", 1, s.tokens)},
      square_(square_partials("attention", attn_out_, s, buffers)),
      x_("attn_input"),
      o_("attn_o", buffers.activation("attention output", s.tokens, s.out_width)),
      dx_("attn_dx"),
      dqkv_("dqkv", buffers.activation("qkv gradient", s.tokens, s.qkv_width)),
      dout_(buffers.activation("attention output gradient", s.tokens, s.out_width)),
      delta_(buffers.statistic("attention delta", s.heads, s.tokens)),
      partials_(buffers.statistic("attention dot partials", s.heads + 2 * s.kv_heads, s.tokens)),
      norm_(norm_partials("attention", s.qkv_width, s, buffers)) {
    if (qkv_.added()) {
        dbias_ = buffers.statistic("qkv bias partials", AttentionBackward::sum_tiles(s.tokens, s.seq_len), s.qkv_width);
    }
    if (parameters.gain) {
        const Weights::Vectors gain = weights.vectors(*parameters.gain);
        const std::int64_t normed = s.heads + s.kv_heads;
        gain_ = gain.value;
        pre_ = buffers.activation("q and k before their norm", s.tokens, s.rotated);
        rho_ = buffers.statistic("rho of q and k", normed, s.tokens);
        dgain_ = buffers.statistic("q and k norm weight partials",
                                   normed * AttentionBackward::sum_tiles(s.tokens, s.seq_len), s.head_dim);
        q_gain_gradient_ = gain.gradient.row_slice(0, 1);
        k_gain_gradient_ = gain.gradient.row_slice(1, 1);
    }
    if (!qkv_.f8()) return;
    const bool keeps = recompute == Recompute::none;
    x_.read_codes(qkv_.input(), buffers.codes("attention input", s.tokens, s.width), keeps);
    o_.read_codes(attn_out_.input(), buffers.codes("attention output", s.tokens, s.out_width), keeps);
    dx_.read_codes(attn_out_.output_gradient(), buffers.codes("attention dx", s.tokens, s.width));
    dqkv_.read_codes(qkv_.output_gradient(),
                     buffers.codes("qkv gradient", s.tokens, s.qkv_width, qkv_.output_gradient().format));
}

void AttentionBlock::keep_nothing() {
    for (Projection* matrix : {&qkv_, &attn_out_}) matrix->read_storage();
    for (Activation* tensor : {&x_, &o_}) tensor->read_storage();
    pre_ = rho_ = {};
}

void AttentionBlock::keep_rows(std::int64_t rows) {
    shape_.seq_len = std::min(shape_.seq_len, rows);
    o_.keep_rows(rows);
    heads_ = heads_.row_slice(0, rows);
    out_.keep_rows(rows);
    for (View* per_token : {&lse_, &square_}) *per_token = narrowed(*per_token, rows);
}

void AttentionBlock::project(StepList& step, const BatchInputs& batch, const Stream& in) {
    x_.from(step, in.x, in.rstd);
    const Factor w = qkv_.forward(step);
    step("qkv", LinearRope{.a = x_.rows(),
                           .w = w,
                           .rstd = x_.rstd(),
                           .bias = qkv_.added(),
                           .gain = gain_,
                           .positions = batch.positions,
                           .rope = batch.rope,
                           .out = write(heads_),
                           .pre = write(pre_),
                           .rho = write(rho_),
                           .rotated = shape_.rotated,
                           .head_dim = shape_.head_dim,
                           .queries = shape_.out_width,
                           .eps = shape_.eps});
    if (!batch.place) return;
    step("store", StoreKeyValue{.qkv = heads_,
                                .place = batch.place,
                                .keys = write(cache_.keys),
                                .values = write(cache_.values),
                                .context = cache_.context,
                                .heads = shape_.heads,
                                .kv_heads = shape_.kv_heads,
                                .head_dim = shape_.head_dim});
}

void AttentionBlock::attend(StepList& step, const BatchInputs& batch) {
    const ModelShape& s = shape_;
    if (batch.lengths) {
        step("attention", DecodeAttention{.qkv = heads_,
                                          .lengths = batch.lengths,
                                          .keys = write(cache_.keys),
                                          .values = write(cache_.values),
                                          .o = o_.store(),
                                          .scratch = {},
                                          .context = cache_.context,
                                          .heads = s.heads,
                                          .kv_heads = s.kv_heads,
                                          .head_dim = s.head_dim,
                                          .window = s.window_within(cache_.context),
                                          .rows_each = cache_.rows_each});
        return;
    }
    step("attention", Attention{.qkv = heads_,
                                .doc_start = batch.doc_start,
                                .o = o_.store(),
                                .o_codes = o_.codes(),
                                .lse = write(lse_),
                                .next_tile = write(next_tile_),
                                .seq_len = s.seq_len,
                                .heads = s.heads,
                                .kv_heads = s.kv_heads,
                                .head_dim = s.head_dim,
                                .window = s.window_within(s.seq_len)});
}

const Stream& AttentionBlock::forward(StepList& step, const BatchInputs& batch, const Stream& in) {
    project(step, batch, in);
    attend(step, batch);
    attn_out_.close_branch(step, "rstd_mlp", o_, in.x, out_, square_, shape_.eps);
    return out_;
}

void AttentionBlock::backward(StepList& step, const BatchInputs& batch, View& dx, Beta beta, const BranchEnd& next) {
    const ModelShape& s = shape_;
    dx_.from(step, dx);
    step("attn_out_dgrad", LinearHeadDot{.a = dx_.rows(),
                                         .w = attn_out_.dgrad(),
                                         .o = o_.storage(),
                                         .out = write(dout_),
                                         .delta = write(delta_),
                                         .head_dim = s.head_dim});
    o_.transpose(step);
    attn_out_.wgrad(step, dx_, o_, beta);
    step("attention_backward", AttentionBackward{.qkv = heads_,
                                                 .o = {},
                                                 .dout = dout_,
                                                 .lse = lse_,
                                                 .delta = delta_,
                                                 .positions = s.rotated > 0 ? batch.positions : View{},
                                                 .rope = s.rotated > 0 ? batch.rope : View{},
                                                 .rstd = x_.rstd(),
                                                 .doc_start = batch.doc_start,
                                                 .gain = gain_,
                                                 .pre = pre_,
                                                 .rho = rho_,
                                                 .bias = qkv_.added(),
                                                 .dqkv = dqkv_.result(),
                                                 .dot = write(partials_),
                                                 .dgain = write(dgain_),
                                                 .dbias = write(dbias_),
                                                 .scratch = {},
                                                 .seq_len = s.seq_len,
                                                 .heads = s.heads,
                                                 .kv_heads = s.kv_heads,
                                                 .head_dim = s.head_dim,
                                                 .window = s.window_within(s.seq_len),
                                                 .eps = s.eps});
    step("attention_dot", FinishRowSum{.partials = partials_, .sum = write(norm_.dot)});
    if (gain_) {
        const std::int64_t tiles = AttentionBackward::sum_tiles(s.tokens, s.seq_len);
        FinishColumnSums sums;
        const auto add = [&](std::int64_t first, std::int64_t heads, View& gradient) {
            sums.add({.partials = dgain_.row_slice(first * tiles, heads * tiles), .grad = {write(gradient), beta}});
        };
        add(0, s.heads, q_gain_gradient_);
        add(s.heads, s.kv_heads, k_gain_gradient_);
        step("head_norms_grad", sums);
    }
    qkv_.sum_dz(step, dbias_, beta);
    x_.transpose(step);
    qkv_.backward(step, "attn_norm_grad", dqkv_, x_, norm_, dx, beta, next);
}

}  // namespace coda
