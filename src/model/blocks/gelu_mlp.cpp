#include "src/model/blocks/gelu_mlp.h"

#include "kernels/core/integers.h"

namespace coda {

GeluMlpBlock::Parameters GeluMlpBlock::declare(ParameterPlan& plan, const ModelConfig& model) {
    const std::int64_t d = model.hidden_size, f = model.intermediate_size;
    const bool layernorm = model.norm == NormKind::layernorm;
    const NormPlaces norm = plan.norm(d, "post_attention_layernorm", layernorm);
    Parameters parameters;
    parameters.up = plan.matrix({.name = "up",
                                 .place = {.rows = f, .cols = d},
                                 .norm = norm,
                                 .has_bias = model.mlp_bias,
                                 .tensors = {{"mlp.up_proj.weight", f}}});
    parameters.down = plan.matrix({.name = "down",
                                   .place = {.rows = d, .cols = f},
                                   .has_bias = model.mlp_bias,
                                   .centred = layernorm,
                                   .deviation = branch_deviation(model),
                                   .tensors = {{"mlp.down_proj.weight", d}}});
    parameters.kind = model.mlp == MlpKind::gelu_exact ? Gelu::exact : Gelu::tanh;
    return parameters;
}

GeluMlpBlock::GeluMlpBlock(const Parameters& parameters, const Weights& weights, const ModelShape& s,
                           Recompute recompute, const BlockBuffers& buffers)
    : shape_(s),
      up_(weights.projection(parameters.up)),
      down_(weights.projection(parameters.down)),
      kind_(parameters.kind),
      keeps_z_(recompute != Recompute::mlp),
      out_{buffers.activation("x after mlp", s.tokens, s.width), buffers.statistic("rstd after mlp", 1, s.tokens)},
      square_(square_partials("mlp", down_, s, buffers)),
      x_("mlp_input"),
      z_("up_z", buffers.activation("up", s.tokens, s.ffn)),
      y_("mlp_y", buffers.activation("mlp activation", s.tokens, s.ffn)),
      dx_("mlp_dx"),
      dz_("up_dz"),
      partials_(buffers.statistic("mlp dot partials", ceil_div(s.ffn, LinearGeluBackward::kTileColumns), s.tokens)),
      norm_(norm_partials("mlp", s.ffn, s, buffers)),
      dbias_(buffers.statistic("up bias partials", ceil_div(s.tokens, LinearGeluBackward::kTileRows), s.ffn)) {
    require(!up_.f8() && !down_.f8(), "an MLP with GELU has no FP8 kernels");
    if (recompute != Recompute::none) y_.make_again(buffers.activation("recomputed mlp activation", s.tokens, s.ffn));
}

void GeluMlpBlock::keep_rows(std::int64_t rows) {
    y_.keep_rows(rows);
    out_.keep_rows(rows);
    square_ = narrowed(square_, rows);
}

void GeluMlpBlock::project(StepList& step, const char* name, const View& z, const View& y) {
    const Factor w = up_.forward(step);
    step(name,
         LinearGelu{.a = x_.rows(), .w = w, .rstd = x_.rstd(), .bias = up_.added(), .z = z, .y = y, .kind = kind_});
}

const Stream& GeluMlpBlock::forward(StepList& step, const BatchInputs&, const Stream& in) {
    x_.from(step, in.x, in.rstd);
    project(step, "up", keeps_z_ ? z_.store() : View{}, y_.store());
    down_.close_branch(step, "rstd_next", y_, in.x, out_, square_, shape_.eps);
    return out_;
}

void GeluMlpBlock::backward(StepList& step, const BatchInputs&, View& dx, Beta beta, const BranchEnd& next) {
    if (!keeps_z_) project(step, "up_recompute", z_.store(), {});
    dx_.from(step, dx);
    dz_.replace(z_);
    step("down_dgrad", LinearGeluBackward{.a = dx_.rows(),
                                          .w = down_.dgrad(),
                                          .z = z_.columns(),
                                          .rstd = x_.rstd(),
                                          .bias = up_.added(),
                                          .dz = dz_.store(),
                                          .y = y_.again(),
                                          .dot = write(partials_),
                                          .dbias = write(dbias_),
                                          .tile = LinearGeluBackward::kTileColumns,
                                          .row_tile = LinearGeluBackward::kTileRows,
                                          .kind = kind_});
    step("mlp_dot", FinishRowSum{.partials = partials_, .sum = write(norm_.dot)});
    up_.sum_dz(step, dbias_, beta);
    down_.wgrad(step, dx_, y_, beta);
    up_.backward(step, "mlp_norm_grad", dz_, x_, norm_, dx, beta, next);
}

}  // namespace coda
