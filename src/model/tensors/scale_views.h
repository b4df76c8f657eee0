// The scales of FP8 training as a run carries them from step to step.
#pragma once

#include "kernels/core/operand.h"

namespace coda {

/// Steps whose largest magnitudes a scale follows from.
inline constexpr std::int64_t kScaleWindow = 16;

/// Views of the statistic type. T tensors have a scale of their own, in the order of Weights::tensors(). A pass that
/// follows uploads of amax, history, step and skip, Pass::scales, makes the rest.
struct ScaleViews {
    View input_scale;  // of normalised inputs, once
    View amax;         // (1, T) of the step under way; of weights, of the codes that the next step reads
    View history;      // (kScaleWindow, T): state, from which the scales follow
    View scales;       // (1, T)
    View products;     // (1, 3 FP8 matrices): what undoes the scales of two factors
};

}  // namespace coda
