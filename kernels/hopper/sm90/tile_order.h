// The order in which persistent clusters visit output tiles.
//
// Tiles are numbered in groups of `group` tiles along M: within a group M varies fastest, then N. The tiles that are
// under way at one time then form a near-square of the output, whose operand rows and columns stay in L2.
#pragma once

#include "kernels/dtype.h"

namespace coda::hopper {

struct TileIndex {
    int m, n;
};

struct TileOrder {
    int tiles_m = 0, tiles_n = 0;  // in units of a cluster's tile
    int group = 8;

    CODA_HD constexpr int count() const { return tiles_m * tiles_n; }

    CODA_HD constexpr TileIndex at(int index) const {
        const int per_group = group * tiles_n;
        const int first = index / per_group * group;
        const int height = tiles_m - first < group ? tiles_m - first : group;
        const int local = index % per_group;
        return {first + local % height, local / height};
    }
};

}  // namespace coda::hopper
