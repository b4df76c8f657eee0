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

void transpose_input(StepList& step, const char* name, const Stream& in, const Float8Gemm& gemm, View& x_t) {
    step(name,
         QuantiseF8{
             .x = in.x, .rstd = in.rstd, .scale = gemm.input.scale, .rows = {}, .columns = write(x_t), .amax = {}});
}

void build_norm_projection_backward(StepList& step, const NormProjectionSteps& names, const Stream& in,
                                    const NormProjectionF8& f8, const View& dot, Weight& weight, Weight& norm,
                                    View& dgamma, View& dx, Beta beta, DxCopies& next) {
    const Float8Gemm& gemm = f8.gemm;
    LinearRmsBackward dgrad{.a = f8.dz,
                            .w = gemm.columns,
                            .f8_scale = gemm.dgrad,
                            .x = in.x,
                            .rstd = in.rstd,
                            .dot = dot,
                            .alpha = {},
                            .scale = {},
                            .dx = {write(dx), Beta::accumulate},
                            .n = {},
                            .dgamma = write(dgamma),
                            .tile = LinearRmsBackward::kTileRows,
                            .promotion = promotion_of_dgrad(gemm)};
    next.add_to(dgrad);
    step(names.dgrad, dgrad);
    step(names.wgrad, WeightGradient{.dy = f8.dz_t,
                                     .x = f8.x_t,
                                     .gamma = norm.value,
                                     .alpha = gemm.wgrad,
                                     .grad = {write(weight.gradient), beta},
                                     .scratch = {}});
    step(names.norm_grad,
         FinishColumnSum{.partials = dgamma, .gamma = norm.value, .grad = {write(norm.gradient), beta}});
}

}  // namespace coda
