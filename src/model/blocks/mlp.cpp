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

MlpBlock::BackwardBuffers::BackwardBuffers(const ModelShape& s, Recompute recompute, const BlockBuffers& buffers) {
    if (recompute != Recompute::none) y = buffers.activation("recomputed mlp activation", s.tokens, s.ffn);
    if (recompute == Recompute::mlp) z = buffers.activation("recomputed gate/up", s.tokens, 2 * s.ffn);
    const std::int64_t tiles = ceil_div(s.ffn, LinearSwigluBackward::kTileColumns);
    partials = buffers.statistic("mlp dot partials", tiles, s.tokens);
    dot = buffers.statistic("mlp dot", 1, s.tokens);
    dgamma = buffers.statistic("mlp norm weight partials", ceil_div(s.tokens, LinearRmsBackward::kTileRows), s.width);
}

MlpBlock::MlpBlock(const Parameters& parameters, const FlatSegments& segments, const ModelShape& s, Recompute recompute,
                   const BlockBuffers& buffers)
    : shape_(s),
      recompute_(recompute),
      norm_(segments.norm(parameters.norm)),
      gate_up_(segments.matrix(parameters.gate_up)),
      down_(segments.matrix(parameters.down)),
      y_(buffers.activation("mlp activation", s.tokens, s.ffn)),
      out_{buffers.activation("x after mlp", s.tokens, s.width), buffers.statistic("rstd after mlp", 1, s.tokens)},
      square_(buffers.statistic("squares after mlp", ceil_div(s.width, LinearResidualRms::kTileColumns), s.tokens)) {
    if (recompute != Recompute::mlp) z_ = buffers.activation("gate/up", s.tokens, 2 * s.ffn);
}

const Stream& MlpBlock::forward(StepList& step, const Stream& in, Keep keep) {
    const bool keeps_z = keep == Keep::activations && recompute_ != Recompute::mlp;
    step("gate_up",
         LinearSwiglu{
             .a = in.x, .w = gate_up_.value, .rstd = in.rstd, .z = keeps_z ? write(z_) : View{}, .y = write(y_)});
    step("down", LinearResidualRms{.a = y_,
                                   .w = down_.value,
                                   .residual = in.x,
                                   .x = write(out_.x),
                                   .square = write(square_),
                                   .tile = LinearResidualRms::kTileColumns});
    step("rstd_next",
         FinishRstd{.square = square_, .rstd = write(out_.rstd), .width = shape_.width, .eps = shape_.eps});
    return out_;
}

void MlpBlock::backward(StepList& step, const Stream& in, BackwardBuffers& g, View& dx, Beta beta) {
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
