// How a GEMM program is launched, for those who do not want the default: the tuner and the tests. Host.
#pragma once

#include <optional>
#include <vector>

#include "kernels/hopper/gemm/tile_config.h"

namespace coda::hopper {

struct GemmChoice {
    /// Where given, receives the program's tile configurations, and nothing is prepared: the launch is empty.
    std::vector<TileConfig>* list = nullptr;
    int candidate = -1;            // index in that list; -1: the one of highest expected speed
    std::optional<Raster> raster;  // instead of the configuration's own
    bool overlap = true;           // the kernel may start while its predecessor in the stream finishes
};

}  // namespace coda::hopper
