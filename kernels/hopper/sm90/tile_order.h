// The order in which persistent clusters visit output tiles.
//
// Tiles are numbered in groups of `group` tiles along M: within a group M varies fastest, then N. The tiles in flight
// then form a near-square of the output, whose operand rows and columns stay in L2. With along_n the roles are
// exchanged: a group is a panel of columns, under which all rows pass.
#pragma once

#include "kernels/core/dtype.h"

namespace coda::hopper {

struct TileIndex {
    int m, n;
    int split;  // part of K
    int half;   // kWhole, or which half of the rows of every CTA

    static constexpr int kWhole = -1;
    CODA_HD constexpr bool whole() const { return half == kWhole; }
    /// First row in the CTA's tile, of `rows` in a half.
    CODA_HD constexpr int first_row(int rows) const { return half == 1 ? rows : 0; }
};

struct TileOrder {
    int tiles_m = 0, tiles_n = 0;  // in units of a cluster's tile
    int group = 8;
    bool along_n = false;
    int splits = 1;  // parts of K: all tiles of one, then of the next
    int halved = 0;  // tiles at the end that come in two halves of their rows (0 with splits)

    CODA_HD constexpr int count() const { return tiles_m * tiles_n * splits + halved; }

    CODA_HD constexpr bool whole(int number) const { return number < tiles_m * tiles_n * splits - halved; }

    /// at(number), for an order that may have several parts of K.
    CODA_HD constexpr TileIndex split_at(int number) const {
        const int split = number / (tiles_m * tiles_n);
        TileIndex index = at(number - split * tiles_m * tiles_n);
        index.split = split;
        return index;
    }
    CODA_HD constexpr TileIndex at(int number) const {
        const int beyond = number - (tiles_m * tiles_n - halved);
        const bool whole = beyond < 0;
        const int index = whole ? number : number - ((beyond + 1) >> 1);
        const int grouped = along_n ? tiles_n : tiles_m, passing = along_n ? tiles_m : tiles_n;
        const int per_group = group * passing;
        const int first = index / per_group * group;
        const int extent = grouped - first < group ? grouped - first : group;
        const int local = index % per_group;
        const int inside = first + local % extent, along = local / extent;
        const int half = whole ? TileIndex::kWhole : beyond & 1;
        return along_n ? TileIndex{along, inside, 0, half} : TileIndex{inside, along, 0, half};
    }
};

}  // namespace coda::hopper
