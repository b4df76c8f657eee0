#include "src/model/tensors/projection.h"

namespace coda {

NormPartials norm_partials(const std::string& block, std::int64_t outputs, const ModelShape& shape,
                           const BlockBuffers& buffers) {
    const std::int64_t tiles = ceil_div(shape.tokens, LinearRmsBackward::kTileRows);
    return {.dot = buffers.statistic(block + " dot", 1, shape.tokens),
            .dgamma = buffers.statistic(block + " norm weight partials", tiles, shape.width),
            .dx_sum = buffers.statistic(block + " dx sum partials", tiles, shape.width),
            .dbeta = buffers.statistic(block + " norm bias partials", ceil_div(outputs, BetaBackward::kTileRows),
                                       shape.width)};
}

View square_partials(const std::string& block, const Projection& closing, const ModelShape& shape,
                     const BlockBuffers& buffers) {
    return buffers.statistic("squares after " + block, ceil_div(shape.width, closing.square_columns(shape.width)),
                             shape.tokens);
}

void Projection::make_value(StepList& step, const std::string& name) {
    if (units_) return step(name, UnpackInt4{.units = units_, .gamma = gamma_, .working = write(value_)});
    step(name, RoundWeights{.master = master_, .gamma = gamma_, .working = write(value_)});
}

Factor Projection::forward(StepList& step) {
    if (codes_) return {codes_.rows, codes_.undo_forward};
    if (!kept_ && !centred_) make_value(step, named("_weights"));
    return {read()};
}

void Projection::derive(StepList& step) {
    if (!kept_) make_value(step, named("_weights"));
    if (centred_) {
        step(named("_centred"),
             CentreColumns{.matrix = value_, .out = write(centred_), .bias = bias_, .bias_out = write(added_)});
    }
    if (beta_)
        step(named("_added"),
             FoldBeta{.working = value_, .gamma = gamma_, .beta = beta_, .bias = bias_, .v = write(added_)});
}

std::int64_t Projection::square_columns(std::int64_t width) const {
    return LinearResidualRms::tile_columns(width, static_cast<bool>(added()));
}

void Projection::close_branch(StepList& step, const char* rstd_step, const Activation& y, const View& residual,
                              Stream& out, View& square, double eps) {
    const Factor w = forward(step);
    step(name_, LinearResidualRms{.a = y.rows(),
                                  .w = w,
                                  .bias = added(),
                                  .residual = residual,
                                  .x = write(out.x),
                                  .square = write(square),
                                  .tile = square_columns(out.x.cols)});
    step(rstd_step, FinishRstd{.square = square, .rstd = write(out.rstd), .width = out.x.cols, .eps = eps});
}

Factor Projection::dgrad() const {
    if (codes_) return {codes_.columns, codes_.undo_dgrad};
    return {read()};
}

void Projection::wgrad(StepList& step, const Activation& dz, const Activation& x, Beta beta) {
    step(named("_wgrad"), WeightGradient{.dy = dz.columns(),
                                         .x = {x.columns(), codes_.undo_wgrad},
                                         .gamma = gamma_,
                                         .alpha = {},
                                         .grad = gradient(beta),
                                         .scratch = {}});
    if (!centred_) return;
    step(named("_wgrad_centred"),
         CentreColumns{
             .matrix = gradient_, .out = write(gradient_), .bias = bias_gradient_, .bias_out = write(bias_gradient_)});
}

void Projection::backward(StepList& step, const char* norm_step, const Activation& dz, const Activation& x,
                          NormPartials& partials, View& dx, Beta beta, const BranchEnd& next) {
    const bool sums_dx = next.has_bias();
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
    FinishColumnSums sums;
    add_norm_sum(sums, partials.dgamma, beta);
    if (beta_) {
        step(named("_beta"), BetaBackward{.db = dz_sum_,
                                          .working = value_,
                                          .beta = beta_,
                                          .grad = write(gradient_),
                                          .dbeta = write(partials.dbeta),
                                          .tile = BetaBackward::kTileRows});
        sums.add({.partials = partials.dbeta, .gamma = gamma_, .grad = {write(beta_gradient_), beta}});
    }
    if (sums_dx) next.closing->add_bias_sum(sums, partials.dx_sum, beta);
    step(norm_step, sums);
}

void Projection::sum_dz(StepList& step, const View& partials, Beta beta) {
    if (!added()) return;
    FinishColumnSums sums;
    if (beta_) sums.add({.partials = partials, .grad = {write(dz_sum_), Beta::overwrite}});
    if (bias_) add_bias_sum(sums, partials, beta);
    step(named("_dz_sum"), sums);
}

void Projection::add_bias_sum(FinishColumnSums& sums, const View& partials, Beta beta) {
    sums.add({.partials = partials, .grad = {write(bias_gradient_), beta}});
}

void Projection::add_norm_sum(FinishColumnSums& sums, const View& dgamma, Beta beta) {
    sums.add({.partials = dgamma, .gamma = gamma_, .grad = {write(gamma_gradient_), beta}});
}

}  // namespace coda
