#include "src/model/blocks/mlp.h"

#include "kernels/core/integers.h"
#include "src/model/blocks/norm_projection.h"

namespace coda {

MlpBlock::Parameters MlpBlock::declare(ParameterPlan& plan, const ModelConfig& model) {
    using Order = HfTensor::Order;
    const std::int64_t d = model.hidden_size, f = model.intermediate_size;
    Parameters parameters;
    parameters.norm = plan.norm(d, "post_attention_layernorm.weight");
    parameters.gate_up =
        plan.projection({.name = "gate_up",
                         .rows = 2 * f,
                         .cols = d,
                         .tensors = {{"mlp.gate_proj.weight", f, Order::even}, {"mlp.up_proj.weight", f, Order::odd}}},
                        parameters.norm);
    parameters.down = plan.matrix(d, f, {{"mlp.down_proj.weight", d}});
    return parameters;
}

MlpBlock::BackwardBuffers::BackwardBuffers(const ModelShape& s, Recompute recompute, bool f8,
                                           const BlockBuffers& buffers) {
    if (recompute != Recompute::none) y = buffers.activation("recomputed mlp activation", s.tokens, s.ffn);
    if (recompute == Recompute::mlp) z = buffers.activation("recomputed gate/up", s.tokens, 2 * s.ffn);
    const std::int64_t tiles = ceil_div(s.ffn, LinearSwigluBackward::kTileColumns);
    partials = buffers.statistic("mlp dot partials", tiles, s.tokens);
    dot = buffers.statistic("mlp dot", 1, s.tokens);
    dgamma = buffers.statistic("mlp norm weight partials", ceil_div(s.tokens, LinearRmsBackward::kTileRows), s.width);
    if (!f8) return;
    dx_f8 = buffers.f8("mlp dx f8", s.tokens, s.width);
    dx_f8_t = buffers.f8_transposed("mlp dx f8 transposed", s.tokens, s.width);
    dz_f8 = buffers.f8("gate/up gradient f8", s.tokens, 2 * s.ffn);
    if (recompute != Recompute::none) x_f8_t = buffers.f8_transposed("mlp input f8 transposed", s.tokens, s.width);
}

MlpBlock::MlpBlock(const Parameters& parameters, const FlatSegments& segments, const ModelShape& s, Recompute recompute,
                   const Float8Layer& float8, const BlockBuffers& buffers)
    : shape_(s),
      recompute_(recompute),
      gate_up_f8_(float8.gate_up),
      down_f8_(float8.down),
      norm_(segments.norm(parameters.norm)),
      gate_up_(segments.matrix(parameters.gate_up)),
      down_(segments.matrix(parameters.down)),
      y_(buffers.activation("mlp activation", s.tokens, s.ffn)),
      out_{buffers.activation("x after mlp", s.tokens, s.width), buffers.statistic("rstd after mlp", 1, s.tokens)},
      square_(buffers.statistic("squares after mlp", ceil_div(s.width, LinearResidualRms::kTileColumns), s.tokens)) {
    if (!gate_up_f8_) {
        if (recompute != Recompute::mlp) z_ = buffers.activation("gate/up", s.tokens, 2 * s.ffn);
        return;
    }
    x_f8_ = buffers.f8("mlp input f8", s.tokens, s.width);
    z_f8_t_ = buffers.f8_transposed("gate/up f8 transposed", s.tokens, 2 * s.ffn);
    y_f8_ = buffers.f8("mlp activation f8", s.tokens, s.ffn);
    y_f8_t_ = buffers.f8_transposed("mlp activation f8 transposed", s.tokens, s.ffn);
    if (recompute == Recompute::none) x_f8_t_ = buffers.f8_transposed("mlp input f8 transposed", s.tokens, s.width);
}

const Stream& MlpBlock::forward(StepList& step, const Stream& in, Keep keep) {
    if (gate_up_f8_ && keep == Keep::activations) {
        forward_f8(step, in);
    } else {
        const bool keeps_z = keep == Keep::activations && recompute_ != Recompute::mlp;
        gate_up_.make(step, "gate_up_weights");
        step("gate_up",
             LinearSwiglu{
                 .a = in.x, .w = gate_up_.value, .rstd = in.rstd, .z = keeps_z ? write(z_) : View{}, .y = write(y_)});
        down_.make(step, "down_weights");
        step("down", LinearResidualRms{.a = y_,
                                       .w = down_.value,
                                       .residual = in.x,
                                       .x = write(out_.x),
                                       .square = write(square_),
                                       .tile = LinearResidualRms::kTileColumns});
    }
    step("rstd_next",
         FinishRstd{.square = square_, .rstd = write(out_.rstd), .width = shape_.width, .eps = shape_.eps});
    return out_;
}

void MlpBlock::forward_f8(StepList& step, const Stream& in) {
    step("mlp_input_f8", QuantiseF8{.x = in.x,
                                    .rstd = in.rstd,
                                    .scale = gate_up_f8_.input.scale,
                                    .rows = write(x_f8_),
                                    .columns = x_f8_t_ ? write(x_f8_t_) : View{},
                                    .amax = {}});
    step("gate_up", LinearSwigluF8{.a = x_f8_,
                                   .w = gate_up_f8_.rows,
                                   .scale = gate_up_f8_.forward,
                                   .z_scale = gate_up_f8_.output.scale,
                                   .z_t = write(z_f8_t_),
                                   .z_amax = write(gate_up_f8_.output.amax),
                                   .y_scale = down_f8_.input.scale,
                                   .y = write(y_f8_),
                                   .y_t = write(y_f8_t_),
                                   .y_amax = write(down_f8_.input.amax)});
    step("down", LinearResidualRms{.a = y_f8_,
                                   .w = down_f8_.rows,
                                   .scale = down_f8_.forward,
                                   .residual = in.x,
                                   .x = write(out_.x),
                                   .square = write(square_),
                                   .tile = LinearResidualRms::kTileColumns});
}

void MlpBlock::backward_f8(StepList& step, const Stream& in, BackwardBuffers& g, View& dx, Beta beta, DxCopies& copies,
                           DxCopies& next) {
    copies.complete(step, "mlp_dx_f8", dx);
    const View saved = z_f8_t_;
    View& dz_f8_t = z_f8_t_;
    step("down_dgrad", LinearSwigluBackwardF8{.a = g.dx_f8,
                                              .w = down_f8_.columns,
                                              .scale = down_f8_.dgrad,
                                              .z_scale = gate_up_f8_.output.scale,
                                              .z_t = saved,
                                              .dz_scale = gate_up_f8_.output_gradient.scale,
                                              .dz = write(g.dz_f8),
                                              .dz_t = write(dz_f8_t),
                                              .dz_amax = write(gate_up_f8_.output_gradient.amax),
                                              .dot = write(g.partials),
                                              .tile = LinearSwigluBackwardF8::kTileColumns});
    step("mlp_dot", FinishRowSum{.partials = g.partials, .sum = write(g.dot)});
    step("down_wgrad", WeightGradient{.dy = g.dx_f8_t,
                                      .x = y_f8_t_,
                                      .gamma = {},
                                      .alpha = down_f8_.wgrad,
                                      .grad = {write(down_.gradient), beta},
                                      .scratch = {}});
    if (g.x_f8_t) transpose_input(step, "mlp_input_f8_t", in, gate_up_f8_, g.x_f8_t);
    const View& x_t = g.x_f8_t ? g.x_f8_t : x_f8_t_;
    build_norm_projection_backward(step, {"gate_up_dgrad", "gate_up_wgrad", "mlp_norm_grad"}, in,
                                   {.gemm = gate_up_f8_, .dz = g.dz_f8, .dz_t = dz_f8_t, .x_t = x_t}, g.dot, gate_up_,
                                   norm_, g.dgamma, dx, beta, next);
}

void MlpBlock::backward(StepList& step, const Stream& in, BackwardBuffers& g, View& dx, Beta beta, DxCopies& copies,
                        DxCopies& next) {
    if (gate_up_f8_) return backward_f8(step, in, g, dx, beta, copies, next);
    if (recompute_ == Recompute::mlp) {
        step("gate_up_recompute",
             LinearSwiglu{.a = in.x, .w = gate_up_.value, .rstd = in.rstd, .z = write(g.z), .y = {}});
    }
    View& z = recompute_ == Recompute::mlp ? g.z : z_;
    const View saved = z;
    const bool keeps_y = recompute_ == Recompute::none;
    step("down_dgrad", LinearSwigluBackward{.a = dx,
                                            .w = down_.value,
                                            .z = saved,
                                            .rstd = in.rstd,
                                            .dz = write(z),
                                            .y = keeps_y ? View{} : write(g.y),
                                            .dot = write(g.partials),
                                            .tile = LinearSwigluBackward::kTileColumns});
    step("mlp_dot", FinishRowSum{.partials = g.partials, .sum = write(g.dot)});
    step("down_wgrad", WeightGradient{.dy = dx,
                                      .x = keeps_y ? y_ : g.y,
                                      .gamma = {},
                                      .alpha = {},
                                      .grad = {write(down_.gradient), beta},
                                      .scratch = {}});
    build_norm_projection_backward(step, {"gate_up_dgrad", "gate_up_wgrad", "mlp_norm_grad"}, in, z, g.dot, gate_up_,
                                   norm_, g.dgamma, dx, beta);
}

void MlpBlock::keep_rows(std::int64_t rows) {
    for (View* matrix : {&y_, &out_.x}) *matrix = matrix->row_slice(0, rows);
    for (View* per_token : {&out_.rstd, &square_}) *per_token = narrowed(*per_token, rows);
}

}  // namespace coda
