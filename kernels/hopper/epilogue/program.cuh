// What an epilogue program is: a struct with resources and one visit() per adjacent column pair.
//
// A program derives from EpilogueProgram, names its Slot and Arguments, and is constructed per thread from the
// arguments. Per 64-row block of a warpgroup's tile the kernel calls:
//
//   load_rows(rows)       once, ahead of time: before the GEMM of a tile, or during the block before. Begin to load
//                         what depends on the row
//   begin_rows(rows)      once
//   measure(rows, acc)    once, on all accumulators of a thread's two rows: statistics that the first pair needs
//   begin_slot(column)    per sub-tile, before its tiles have arrived; fetch what depends on the column
//   fetch(at)             for every pair of the sub-tile, or of a group of them, once its tiles have arrived: what
//                         takes time to load, to registers
//   visit(pair, at)       for every pair of the sub-tile: the mathematics
//   end_blocks<n>(block)  after the pairs of n 8-column blocks of a sub-tile from `block` on: all of them, or two where
//                         registers are short
//   end_slot(column)      per sub-tile
//   end_rows(rows)        once; finish row and column statistics
//
// Resource names: TileLoad, TileStore, RowVector (over N), ColumnVector (over M), RowSum (per row over the tile's
// columns), ColumnSum (per column over the tile's rows). CUTLASS calls them AuxLoad, AuxStore, RowBroadcast,
// ColBroadcast, ColReduction and RowReduction.
#pragma once

#include "kernels/hopper/epilogue/slot.h"

namespace coda::hopper {

/// Where a thread of a warpgroup stands.
struct Thread {
    int warp;       // in the warpgroup, 0..3
    int lane;       // in the warp
    int warpgroup;  // consumer, 0..1
};

/// The two rows of a thread in a 64-row block, the columns of the tile, and this warpgroup's scratch.
struct Rows {
    Thread thread;
    int first;              // global row of half 0; half 1 is 8 rows on
    int count;              // rows of the matrix (M)
    int column;             // first column of the tile
    int width;              // columns of a tile
    int columns;            // columns of the matrix (N)
    std::uint32_t scratch;  // address of Program::kScratchBytes of shared memory

    __device__ int row(int half) const { return first + 8 * half; }
    __device__ bool valid(int half) const { return row(half) < count; }
    /// Global index of the 64-row block.
    __device__ int block() const { return static_cast<int>(static_cast<unsigned>(first) / kPanelRows); }
    /// Index of the tile along N.
    __device__ int tile_n() const {
        return static_cast<int>(static_cast<unsigned>(column) / static_cast<unsigned>(width));
    }
};

/// One pair: accumulator columns (column, column + 1) of `row`.
struct Here {
    Thread thread;
    std::uint32_t slot;  // shared address of the slot
    int block;           // 8-column block of the sub-tile; a constant after unrolling
    int half;            // 0 or 1; a constant after unrolling
    int row;             // global
    int column;          // global
};

struct EpilogueProgram {
    static constexpr int kScratchBytes = 0;    // of shared memory, per consumer warpgroup
    static constexpr int kFetched = 0;         // pairs fetched before they are visited, in fours; 0: a whole sub-tile,
                                               // or four where the tile is crowded
    static constexpr bool kHalves = true;      // tiles of the last wave may come in halves of their rows
    static constexpr bool kLastFirst = false;  // K is summed from its last tile to its first
    static constexpr bool kSplits = false;     // may run on parts of K, with results of each part
    static constexpr int kResidentBytes = 16 << 20;  // of B that stays in L2 while the other operands stream through

    __device__ void load_rows(const Rows&) {}
    __device__ void begin_rows(const Rows&) {}
    /// Columns 8 b + Fragment::column(lane, 0) and the next one of the tile, in row `half`, are acc[4 b + 2 half] and
    /// the next one.
    template <int kFloats>
    __device__ void measure(const Rows&, const float (&)[kFloats]) {}
    __device__ void begin_slot(const Rows&, int /*column*/) {}
    __device__ void fetch(const Here&) {}
    template <int kBlocks>
    __device__ void end_blocks(const Rows&, int /*column*/, int /*block*/) {}
    __device__ void end_slot(const Rows&, int /*column*/) {}
    __device__ void end_rows(const Rows&) {}
};

}  // namespace coda::hopper
