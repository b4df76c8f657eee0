#include "src/model/tensors/projection.h"

namespace coda {

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
                          const View& dot, View& dgamma, View& dx, Beta beta, Activation* next) {
    const Accumulate<Matrix> written(write(dx), Beta::accumulate);
    step(named("_dgrad"), LinearRmsBackward{.a = dz.rows(),
                                            .w = dgrad(),
                                            .x = x.storage(),
                                            .rstd = x.storage_rstd(),
                                            .dot = dot,
                                            .alpha = {},
                                            .scale = {},
                                            .dx = written,
                                            .dx_codes = f8() && next != nullptr ? next->codes() : Rounded{},
                                            .n = {},
                                            .dgamma = write(dgamma),
                                            .tile = LinearRmsBackward::kTileRows});
    wgrad(step, dz, x, beta);
    norm_gradient(step, norm_step, dgamma, beta);
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
    step(named("_bias_grad"), FinishColumnSum{.partials = dbias, .gamma = {}, .grad = {write(bias_gradient_), beta}});
}

void Projection::norm_gradient(StepList& step, const char* name, const View& dgamma, Beta beta) {
    step(name, FinishColumnSum{.partials = dgamma, .gamma = gamma_, .grad = {write(gamma_gradient_), beta}});
}

}  // namespace coda
