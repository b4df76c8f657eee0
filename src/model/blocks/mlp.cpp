#include "src/model/blocks/mlp.h"

#include "kernels/core/integers.h"

namespace coda {

MlpBlock::Parameters MlpBlock::declare(ParameterPlan& plan, const ModelConfig& model) {
    using Order = HfTensor::Order;
    const std::int64_t d = model.hidden_size, f = model.intermediate_size;
    const NormPlaces norm = plan.norm(d, "post_attention_layernorm", false);
    Parameters parameters;
    parameters.gate_up =
        plan.matrix({.name = "gate_up",
                     .place = {.rows = 2 * f, .cols = d},
                     .norm = norm,
                     .rounds_output = true,
                     .tensors = {{"mlp.gate_proj.weight", f, Order::even}, {"mlp.up_proj.weight", f, Order::odd}}});
    parameters.down =
        plan.matrix({.name = "down", .place = {.rows = d, .cols = f}, .tensors = {{"mlp.down_proj.weight", d}}});
    return parameters;
}

MlpBlock::MlpBlock(const Parameters& parameters, const Weights& weights, const ModelShape& s, Recompute recompute,
                   const BlockBuffers& buffers)
    : shape_(s),
      gate_up_(weights.projection(parameters.gate_up)),
      down_(weights.projection(parameters.down)),
      keeps_z_(gate_up_.f8() || recompute != Recompute::mlp),
      out_{buffers.activation("x after mlp", s.tokens, s.width), buffers.statistic("rstd after mlp", 1, s.tokens)},
      square_(square_partials("mlp", down_, s, buffers)),
      x_("mlp_input"),
      z_("gate_up_z", buffers.activation("gate/up", s.tokens, 2 * s.ffn)),
      y_("mlp_y", buffers.activation("mlp activation", s.tokens, s.ffn)),
      dx_("mlp_dx"),
      dz_("gate_up_dz"),
      partials_(buffers.statistic("mlp dot partials", ceil_div(s.ffn, LinearSwigluBackward::kTileColumns), s.tokens)),
      norm_(norm_partials("mlp", 2 * s.ffn, s, buffers)) {
    const bool keeps = recompute == Recompute::none;
    if (!keeps) y_.make_again(buffers.activation("recomputed mlp activation", s.tokens, s.ffn));
    if (!gate_up_.f8()) return;
    x_.read_codes(gate_up_.input(), buffers.codes("mlp input", s.tokens, s.width), keeps);
    // z and y as codes take less than z in bf16, so both are kept.
    z_.read_codes(gate_up_.output(), {{}, buffers.transposed_codes("gate/up", s.tokens, 2 * s.ffn)});
    y_.read_codes(down_.input(), buffers.codes("mlp activation", s.tokens, s.ffn));
    dx_.read_codes(down_.output_gradient(), buffers.codes("mlp dx", s.tokens, s.width));
    dz_.read_codes(gate_up_.output_gradient(), {buffers.codes_by_rows("gate/up gradient", s.tokens, 2 * s.ffn), {}});
}

void MlpBlock::keep_nothing() {
    for (Projection* matrix : {&gate_up_, &down_}) matrix->read_storage();
    for (Activation* tensor : {&x_, &z_, &y_}) tensor->read_storage();
    keeps_z_ = false;
}

void MlpBlock::keep_rows(std::int64_t rows) {
    y_.keep_rows(rows);
    out_.keep_rows(rows);
    square_ = narrowed(square_, rows);
}

const Stream& MlpBlock::forward(StepList& step, const BatchInputs&, const Stream& in) {
    x_.from(step, in.x, in.rstd);
    const Factor gate_up = gate_up_.forward(step);
    step(
        "gate_up",
        LinearSwiglu{
            .a = x_.rows(), .w = gate_up, .rstd = x_.rstd(), .z = keeps_z_ ? z_.result() : Result{}, .y = y_.result()});
    down_.close_branch(step, "rstd_next", y_, in.x, out_, square_, shape_.eps);
    return out_;
}

void MlpBlock::backward(StepList& step, const BatchInputs&, View& dx, Beta beta, const BranchEnd& next) {
    if (!keeps_z_) {
        step("gate_up_recompute",
             LinearSwiglu{.a = x_.rows(), .w = gate_up_.forward(step), .rstd = x_.rstd(), .z = z_.result(), .y = {}});
    }
    dx_.from(step, dx);
    dz_.replace(z_);
    step("down_dgrad", LinearSwigluBackward{.a = dx_.rows(),
                                            .w = down_.dgrad(),
                                            .z = z_.columns(),
                                            .z_scale = z_.scale(),
                                            .rstd = x_.rstd(),
                                            .dz = dz_.result(),
                                            .y = y_.again(),
                                            .dot = write(partials_),
                                            .tile = LinearSwigluBackward::kTileColumns});
    step("mlp_dot", FinishRowSum{.partials = partials_, .sum = write(norm_.dot)});
    down_.wgrad(step, dx_, y_, beta);
    x_.transpose(step);
    gate_up_.backward(step, "mlp_norm_grad", dz_, x_, norm_, dx, beta, next);
}

}  // namespace coda
