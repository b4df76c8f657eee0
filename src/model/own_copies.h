// Working copies in a plan that trains with FP8 and generates nothing: each matrix has its own, and it is kept only
// where a training pass reads it. That of a matrix which training reads in FP8 exists from where it is rounded to where
// it is read: its FP8 copies take the bytes that the flat working copy would.
#pragma once

#include <vector>

#include "src/model/blocks/block_buffers.h"
#include "src/model/blocks/weights.h"
#include "src/model/float8_state.h"
#include "src/model/parameters.h"

namespace coda {

std::vector<FlatSegments::Copy> own_copies(const ParameterLayout& layout, const Float8State& float8, const View& master,
                                           const BlockBuffers& buffers);

}  // namespace coda
