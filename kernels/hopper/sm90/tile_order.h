// The order in which persistent clusters visit output tiles.
//
// Tiles are numbered in groups of `group` tiles along M: within a group M varies fastest, then N. The tiles that are
// under way at one time then form a near-square of the output, whose operand rows and columns stay in L2. Along N the
// roles are exchanged: a group is a panel of columns, under which all rows pass.
#pragma once

#include "kernels/dtype.h"

namespace coda::hopper {

struct TileIndex {
    int m, n;
};

struct TileOrder {
    int tiles_m = 0, tiles_n = 0;  // in units of a cluster's tile
    int group = 8;
    bool along_n = false;

    CODA_HD constexpr int count() const { return tiles_m * tiles_n; }

    CODA_HD constexpr TileIndex at(int index) const {
        const int grouped = along_n ? tiles_n : tiles_m, passing = along_n ? tiles_m : tiles_n;
        const int per_group = group * passing;
        const int first = index / per_group * group;
        const int extent = grouped - first < group ? grouped - first : group;
        const int local = index % per_group;
        const int inside = first + local % extent, along = local / extent;
        return along_n ? TileIndex{along, inside} : TileIndex{inside, along};
    }
};

}  // namespace coda::hopper
