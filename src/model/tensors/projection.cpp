#include "src/model/tensors/projection.h"

namespace coda {

NormPartials norm_partials(const std::string& block, const ModelShape& shape, const BlockBuffers& buffers) {
    const std::int64_t tiles = ceil_div(shape.tokens, LinearRmsBackward::kTileRows);
    return {.dot = buffers.statistic(block + " dot", 1, shape.tokens),
            .dgamma = buffers.statistic(block + " norm weight partials", tiles, shape.width),
            .dx_sum = buffers.statistic(block + " dx sum partials", tiles, shape.width)};
}

void Projection::make_value(StepList& step, const std::string& name) {
    if (units_) return step(name, UnpackInt4{.units = units_, .gamma = gamma_, .working = write(value_)});
    step(name, RoundWeights{.master = master_, .gamma = gamma_, .working = write(value_)});
}

Factor Projection::forward(StepList& step) {
    if (codes_) return {codes_.rows, codes_.undo_forward};
    if (!kept_) make_value(step, named("_weights"));
    return {value_};
}

Factor Projection::dgrad() const {
    if (codes_) return {codes_.columns, codes_.undo_dgrad};
    return {value_};
}

void Projection::wgrad(StepList& step, const Activation& dz, const Activation& x, Beta beta) {
    step(named("_wgrad"), WeightGradient{.dy = dz.columns(),
                                         .x = {x.columns(), codes_.undo_wgrad},
                                         .gamma = gamma_,
                                         .alpha = {},
                                         .grad = gradient(beta),
                                         .scratch = {}});
}

void Projection::backward(StepList& step, const char* norm_step, const Activation& dz, const Activation& x,
                          NormPartials& partials, View& dx, Beta beta, const BranchEnd& next) {
    const bool sums_dx = next.closing != nullptr && next.closing->bias_;
    const Accumulate<Matrix> written(write(dx), Beta::accumulate);
    step(named("_dgrad"), LinearRmsBackward{.a = dz.rows(),
                                            .w = dgrad(),
                                            .x = x.storage(),
                                            .rstd = x.storage_rstd(),
                                            .dot = partials.dot,
                                            .alpha = {},
                                            .scale = {},
                                            .dx = written,
                                            .dx_codes = f8() && next.dx != nullptr ? next.dx->codes() : Rounded{},
                                            .n = {},
                                            .dgamma = write(partials.dgamma),
                                            .dx_sum = sums_dx ? write(partials.dx_sum) : View{},
                                            .tile = LinearRmsBackward::kTileRows});
    wgrad(step, dz, x, beta);
    norm_gradient(step, norm_step, partials.dgamma, beta);
    if (sums_dx) next.closing->bias_gradient(step, partials.dx_sum, beta);
}

void Projection::bias_backward(StepList& step, const Activation& dz, const Activation& x, View& dot, View& dbias,
                               Beta beta) {
    if (!bias_) return;
    step(named("_bias"), BiasBackward{.dz = dz.storage(),
                                      .rstd = x.rstd(),
                                      .bias = bias_,
                                      .dot = write(dot),
                                      .sum = write(dbias),
                                      .tile = BiasBackward::kTileRows});
    bias_gradient(step, dbias, beta);
}

void Projection::bias_gradient(StepList& step, const View& partials, Beta beta) {
    step(named("_bias_grad"),
         FinishColumnSum{.partials = partials, .gamma = {}, .grad = {write(bias_gradient_), beta}});
}

void Projection::norm_gradient(StepList& step, const char* name, const View& dgamma, Beta beta) {
    step(name, FinishColumnSum{.partials = dgamma, .gamma = gamma_, .grad = {write(gamma_gradient_), beta}});
}

}  // namespace coda
