// What ranks have each for themselves, made into one. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// out[i] = parts[0][i] ∘ parts[1][i] ∘ ..., in the order of the rows and in the parts' type, where ∘ is the sum or
/// the larger one. A row is of a rank, so the bits depend on the number of ranks and on nothing else. A NaN of any part
/// stays NaN.
struct ReduceParts {
    enum class How : std::uint8_t { sum, largest };

    In<Matrix> parts;  // (N, n) gradient or statistic
    Out<Vector> out;   // (1, n) of the same type
    How how = How::sum;

    static constexpr Traits traits{Trait::flops, Trait::tolerance};
    static constexpr const char* name = "ReduceParts";
    static constexpr auto operands = fields(field("parts", &ReduceParts::parts), field("out", &ReduceParts::out));

    double flops() const { return static_cast<double>(parts.count()); }
    /// The order of the sum is given.
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }
};

}  // namespace coda
