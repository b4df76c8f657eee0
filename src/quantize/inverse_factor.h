// The factor of an inverse by which GPTQ distributes rounding errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coda {

/// U, upper triangular, (n, n) row-major with zeros below the diagonal, of which Uᵀ U = (H + damping I)⁻¹. H: (n, n)
/// row-major, symmetric and positive semidefinite, of which the upper triangle is read; a row without any input (0 on
/// the diagonal) counts as one of the identity. The damping is `share` of the mean of the diagonal. Computed in double.
/// Throws Error where H is not positive definite even so: it has numbers that are not finite.
std::vector<float> inverse_factor(std::span<const float> h, std::int64_t n, double share = 0.01);

}  // namespace coda
