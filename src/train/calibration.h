// Rounds a model's weights to 4-bit integers by GPTQ, and says what that costs.
#pragma once

#include <cstdint>
#include <memory>

#include "src/core/console.h"
#include "src/engine/session.h"
#include "src/train/run_files.h"

namespace coda {

/// Rounds the layers' matrices of `weights` by GPTQ over the first `sequences` training sequences. `weights` must be
/// the session's; afterwards the session has the result. Prints the validation loss and perplexity of the weights as
/// they are, rounded to nearest, and by GPTQ. The session runs Pass::evaluate. `layout` and `weights` must outlive the
/// result. Throws Error where there are fewer sequences, or no validation target.
std::unique_ptr<MasterWeights> calibrated(Session& session, TrainingData data, std::int64_t sequences,
                                          const ParameterLayout& layout, const MasterWeights& weights,
                                          Console& console);

}  // namespace coda
