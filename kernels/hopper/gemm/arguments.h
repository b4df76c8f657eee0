// The arguments of a GEMM kernel: one __grid_constant__ parameter.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/hopper/sm90/tile_order.h"

namespace coda::hopper {

/// Which panels a launch loads, stores, or adds to the destination (fp32 reduction): bit i is panel i.
struct PanelUse {
    std::uint32_t load = 0, store = 0, add = 0;
};

template <class Program>
struct GemmArguments {
    CUtensorMap a, b;
    CUtensorMap load[Program::Slot::kPanels];
    CUtensorMap store[Program::Slot::kPanels];
    PanelUse use;
    int m = 0, n = 0;
    int k_tiles = 0;     // of one part of K
    int split_rows = 0;  // rows between the results of the parts of K
    TileOrder order;     // in tiles of a cluster
    typename Program::Arguments program;

    __device__ TileIndex tile(int number) const {
        if constexpr (Program::kSplits)
            if (order.splits > 1) return order.split_at(number);
        return order.at(number);
    }
};

}  // namespace coda::hopper
