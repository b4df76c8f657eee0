// The backward pass of a projection after a norm, which attention and MLP share.
#pragma once

#include "src/model/blocks/dx_copies.h"
#include "src/model/blocks/step_list.h"
#include "src/model/blocks/streams.h"
#include "src/model/blocks/weights.h"

namespace coda {

/// Names of the three steps in the schedule.
struct NormProjectionSteps {
    const char *dgrad, *wgrad, *norm_grad;
};

/// From dz (M, N), the gradient of z = norm(in.x) Wᵀ times the norm's rstd, and dot (1, M), Σ z dz of its rows: adds to
/// dx, and writes the gradients of W and of the norm's weight. `dgamma` takes the partials of the latter.
void build_norm_projection_backward(StepList& step, const NormProjectionSteps& names, const Stream& in, const View& dz,
                                    const View& dot, Weight& weight, Weight& norm, View& dgamma, View& dx, Beta beta);

/// The FP8 operands of that backward pass: dz by rows and transposed, without the norm's rstd, which the normalised
/// input has instead; and the transposed copy of that input.
struct NormProjectionF8 {
    const Float8Gemm& gemm;
    View dz;    // (M, N)
    View dz_t;  // (N, M)
    View x_t;   // (d, M)
};

/// Makes the transposed copy of a normalised input anew, where the forward pass has kept none.
void transpose_input(StepList& step, const char* name, const Stream& in, const Float8Gemm& gemm, View& x_t);

/// The same with FP8 operands. `dot` is without rstd, too. `next` are copies of the dx that it makes.
void build_norm_projection_backward(StepList& step, const NormProjectionSteps& names, const Stream& in,
                                    const NormProjectionF8& f8, const View& dot, Weight& weight, Weight& norm,
                                    View& dgamma, View& dx, Beta beta, DxCopies& next);

}  // namespace coda
