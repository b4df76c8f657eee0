#include "src/model/blocks/norm_projection.h"

namespace coda {

void build_norm_projection_backward(StepList& step, const NormProjectionSteps& names, const Stream& in, const View& dz,
                                    const View& dot, Weight& weight, Weight& norm, View& dgamma, View& dx, Beta beta) {
    step(names.dgrad, LinearRmsBackward{.a = dz,
                                        .w = weight.value,
                                        .x = in.x,
                                        .rstd = in.rstd,
                                        .dot = dot,
                                        .alpha = {},
                                        .scale = {},
                                        .dx = {write(dx), Beta::accumulate},
                                        .n = {},
                                        .dgamma = write(dgamma),
                                        .tile = LinearRmsBackward::kTileRows});
    step(names.wgrad, WeightGradient{.dy = dz,
                                     .x = in.x,
                                     .gamma = norm.value,
                                     .alpha = {},
                                     .grad = {write(weight.gradient), beta},
                                     .scratch = {}});
    step(names.norm_grad,
         FinishColumnSum{.partials = dgamma, .gamma = norm.value, .grad = {write(norm.gradient), beta}});
}

}  // namespace coda
