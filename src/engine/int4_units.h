// Matrices of 4-bit integers as a plan keeps them (kernels/math/int4.h), from a source that has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/model/master_weights.h"

namespace coda {

/// The numbers of the layout's matrices all of whose tensors consist of 4-bit integers, and which come in whole units;
/// without the embedding, whose rows are looked up.
std::vector<std::size_t> int4_matrices(const ParameterLayout& layout, const MasterWeights& weights);

/// The units of such a matrix; 0 in its padding.
std::vector<std::uint32_t> int4_units(const ParameterLayout& layout, const WeightMatrix& matrix,
                                      const MasterWeights& weights);

}  // namespace coda
