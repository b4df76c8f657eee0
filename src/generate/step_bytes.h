// What a step of generation must read of its device's memory.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/ops.h"

namespace coda {

struct StepBytes {
    double weights = 0;   // of all matrices, once per step, whatever the batch
    double position = 0;  // keys and values of all layers, per sequence, step and token of the sequence that is seen
    std::int64_t most_positions = std::numeric_limits<std::int64_t>::max();  // tokens of a sequence that are seen
};

/// `decode`: the list of Pass::decode. Single rows of the embedding and vectors of activations do not count.
StepBytes step_bytes(const Schedule& decode);

}  // namespace coda
