// Any GEMM program with a choice of how it is launched: for the tuner and the tests. Host.
#pragma once

#include "kernels/hopper/programs/programs.h"

namespace coda::hopper {

/// Throws Error for an op that is no GEMM program, and where the chosen tile does not fit the op.
inline Launch prepare_gemm(const Op& op, const Memory& memory, const GemmChoice& choice) {
    return std::visit(
        [&](const auto& concrete) -> Launch {
            if constexpr (requires { prepare_op(concrete, memory, choice); }) {
                return prepare_op(concrete, memory, choice);
            } else {
                throw Error(text(concrete.name, " is no GEMM program"));
            }
        },
        op);
}

/// Every tile configuration of the op's program, in the order of GemmChoice::candidate.
inline std::vector<TileConfig> tile_candidates(const Op& op, const Memory& memory) {
    std::vector<TileConfig> list;
    GemmChoice choice;
    choice.list = &list;
    prepare_gemm(op, memory, choice);
    return list;
}

}  // namespace coda::hopper
