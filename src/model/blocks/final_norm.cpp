#include "src/model/blocks/final_norm.h"

#include "kernels/core/integers.h"

namespace coda {

FinalNorm::FinalNorm(const NormPlaces& places, const Weights& weights, const ModelShape& s, const BlockBuffers& buffers)
    : gamma_(weights.vectors(places.weight)),
      beta_(weights.vectors(places.bias.value())),
      n_(buffers.activation("final norm", s.tokens, s.width)),
      dn_(buffers.activation("final norm gradient", s.tokens, s.width)) {
    const std::int64_t tiles = ceil_div(s.tokens, LayerNormBackward::kTileRows);
    dgamma_ = buffers.statistic("final norm weight partials", tiles, s.width);
    dbeta_ = buffers.statistic("final norm bias partials", tiles, s.width);
    dx_sum_ = buffers.statistic("final norm dx sum partials", tiles, s.width);
}

Stream FinalNorm::forward(StepList& step, const Stream& in) {
    View n = n_.row_slice(0, in.x.rows);
    n.version = write(n_).version;
    step("final_norm", LayerNorm{.x = in.x, .rstd = in.rstd, .gamma = gamma_.value, .beta = beta_.value, .n = n});
    return {n, {}};
}

void FinalNorm::backward(StepList& step, const Stream& in, View& dx, Beta beta, const BranchEnd& last) {
    const bool sums_dx = last.has_bias();
    step("final_norm_backward", LayerNormBackward{.dn = dn_,
                                                  .x = in.x,
                                                  .rstd = in.rstd,
                                                  .gamma = gamma_.value,
                                                  .dx = write(dx),
                                                  .dgamma = write(dgamma_),
                                                  .dbeta = write(dbeta_),
                                                  .dx_sum = sums_dx ? write(dx_sum_) : View{},
                                                  .tile = LayerNormBackward::kTileRows});
    FinishColumnSums sums;
    sums.add({.partials = dgamma_, .grad = {write(gamma_.gradient), beta}});
    sums.add({.partials = dbeta_, .grad = {write(beta_.gradient), beta}});
    if (sums_dx) last.closing->add_bias_sum(sums, dx_sum_, beta);
    step("final_norm_grad", sums);
}

}  // namespace coda
