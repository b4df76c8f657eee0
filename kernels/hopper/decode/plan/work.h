// Who does what in a decode step: index arithmetic that the host, the producer and the consumers share. Host and
// device.
//
// An op is a list of tiles. An SM takes every G-th of them, beginning at one that differs from op to op. Its tiles are
// cut into k-tiles, which its producer loads in order and its consumer warps use in the same order. All warps compute
// that order from the same functions, so they exchange no work list.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/hopper/sm90/limits.h"
#include "kernels/math/int4.h"

namespace coda::hopper::decode {

inline constexpr int kConsumerWarps = 8, kEpilogueWarps = 2;
inline constexpr int kThreads = 32 * (kConsumerWarps + kEpilogueWarps + 1);  // and the producer's warp
inline constexpr int kOctet = 8;                                             // sequences: the columns of an MMA
inline constexpr int kMaxOctets = 2, kMaxBatch = kMaxOctets * kOctet;        // sequences
inline constexpr int kMaxGroup = 8;      // query heads per key/value head: columns too
inline constexpr int kTileRows = 16;     // rows of a weight matrix that an MMA takes
inline constexpr int kStepColumns = 16;  // columns of it

/// Groups of eight sequences. In bf16 each takes an MMA.
CODA_HD constexpr int octets_of(int batch) { return (batch + kOctet - 1) / kOctet; }

/// The lanes of an epilogue warp take a tile's eight pairs of rows for this many sequences at a time.
inline constexpr int kTaskSequences = 4;
/// Whether both epilogue warps take every tile: the first for four sequences, or from nine on for eight, and the second
/// for the others. With fewer sequences they take tiles in turn.
CODA_HD constexpr bool splits_tiles(int batch) { return batch > kTaskSequences; }
/// The most sequences of an epilogue warp, where both take every tile.
CODA_HD constexpr int warp_sequences(int octets) { return octets * kOctet / kEpilogueWarps; }

// A k-tile in bf16: up to eight blocks of 16 rows and 64 columns, as a copy through a tensor map lays them out.
inline constexpr int kBlockColumns = 64, kSliceBlocks = 8, kSliceColumns = kBlockColumns * kSliceBlocks;
inline constexpr int kHalfSliceBlocks = kSliceBlocks / 2;
inline constexpr int kBlockRowBytes = 2 * kBlockColumns, kBlockBytes = kTileRows * kBlockRowBytes;
// A k-tile in 4-bit integers: up to four units of 16 rows and 128 columns.
inline constexpr int kUnitBytes = 4 * kInt4UnitWords, kUnitBlocks = kInt4Group / kBlockColumns;
static_assert(kInt4Rows == kTileRows && kSliceBlocks % kUnitBlocks == 0);

// A stage of the ring holds the k-tiles of neighbouring slices of a tile, which are contiguous: a copy of one small
// k-tile could not keep up with memory.
inline constexpr int kInt4StageBlocks = 4 * kSliceBlocks;
/// The most slices of a stage. int4: of a kernel that takes 4-bit integers too.
CODA_HD constexpr int most_stage_slices(bool int4) {
    return (int4 ? kInt4StageBlocks : kSliceBlocks) / kHalfSliceBlocks;
}
CODA_HD constexpr int stage_bytes(bool int4) {
    constexpr int kBf16 = kSliceBlocks * kBlockBytes, kInt4 = kInt4StageBlocks / kUnitBlocks * kUnitBytes;
    static_assert(kBf16 % kSwizzleAtomBytes == 0 && kInt4 > kBf16);
    return int4 ? (kInt4 + kSwizzleAtomBytes - 1) / kSwizzleAtomBytes * kSwizzleAtomBytes : kBf16;
}

/// The columns of a matrix in slices of up to kHalfSliceBlocks blocks; where a slice per warp would not suffice then,
/// of up to kSliceBlocks. All slices are equal but the last ones, which may be shorter or empty. Their number divides
/// the number of consumer warps, or is a multiple of it, so that a warp has the same slices of every tile and can keep
/// its slices of the input.
struct Slices {
    int number = 0, most = 0;  // most: blocks of a slice
    int blocks = 0;            // of the whole matrix; the last one may reach past its columns

    CODA_HD int first_block(int slice) const { return slice * most < blocks ? slice * most : blocks; }
    CODA_HD int blocks_of(int slice) const { return first_block(slice + 1) - first_block(slice); }
    CODA_HD int first_column(int slice) const { return first_block(slice) * kBlockColumns; }
    /// Columns of a slice of a matrix of `columns`. An empty slice begins behind them and has 0.
    CODA_HD int columns_of(int slice, int columns) const {
        const int left = columns - first_column(slice), most_columns = blocks_of(slice) * kBlockColumns;
        return left < 0 ? 0 : left < most_columns ? left : most_columns;
    }
    /// Partial sums of a tile, each from one warp.
    CODA_HD int partials() const { return number < kConsumerWarps ? number : kConsumerWarps; }
    /// Slices of a tile that one warp adds up, in order.
    CODA_HD int rounds() const { return number < kConsumerWarps ? 1 : number / kConsumerWarps; }
};

/// Of `columns`, a positive multiple of kStepColumns. int4: slices consist of whole units, as long as the columns do.
CODA_HD Slices slices_of(int columns, bool int4) {
    Slices slices;
    slices.blocks = (columns + kBlockColumns - 1) / kBlockColumns;
    const int least = (slices.blocks + kSliceBlocks - 1) / kSliceBlocks;
    slices.number = 1;
    while (slices.number < kConsumerWarps && slices.number * kHalfSliceBlocks < slices.blocks) slices.number *= 2;
    if (least > kConsumerWarps) slices.number = (least + kConsumerWarps - 1) / kConsumerWarps * kConsumerWarps;
    slices.most = (slices.blocks + slices.number - 1) / slices.number;
    if (int4) slices.most = (slices.most + kUnitBlocks - 1) / kUnitBlocks * kUnitBlocks;
    return slices;
}

/// log2 of the slices of a tile that a stage holds. Divisions by a number that is known only at run time would be on
/// the way of every k-tile.
CODA_HD int stage_shift(const Slices& slices, bool int4) {
    static_assert(most_stage_slices(false) == 2 && most_stage_slices(true) == 8);
    const bool half = slices.most <= kHalfSliceBlocks;
    if (!int4) return slices.number > 1 && half ? 1 : 0;
    return slices.number < 4 ? slices.number / 2 : slices.number > 4 && half ? 3 : 2;
}
CODA_HD int stage_slices(const Slices& slices, bool int4) { return 1 << stage_shift(slices, int4); }

/// Whether one copy loads a stage, through a tensor map whose rows are blocks. A last block that is not whole would
/// reach into the next row of the matrix: such a matrix is copied block by block, with zeros behind its end.
CODA_HD bool in_whole_blocks(int columns) { return columns % kBlockColumns == 0; }

/// The tiles of one SM: first, first + grid, ...
struct OwnTiles {
    int first = 0, grid = 1, number = 0;

    CODA_HD int tile(int index) const { return first + index * grid; }
};

/// Tile i goes to SM (i + rotation) mod grid; 0 <= rotation < grid.
CODA_HD OwnTiles own_tiles(int tiles, int rotation, int sm, int grid) {
    OwnTiles own;
    own.first = sm - rotation < 0 ? sm - rotation + grid : sm - rotation;
    own.grid = grid;
    own.number = own.first < tiles ? (tiles - 1 - own.first) / grid + 1 : 0;
    return own;
}

/// Where a warp cannot keep its slices of the input for all tiles, it fetches each slice once for this many tiles and
/// keeps the sums of these.
inline constexpr int kTilesTogether = 2;

/// K-tile m of an SM's GEMM belongs to consumer warp m mod 8.
struct KTile {
    int tile, slice;  // the tile as an index among the SM's own
};
/// Calls fn(k-tile) in order, `together` tiles at a time: kConsumerWarps slices of each of these tiles, then the next
/// slices. It stops when fn returns false, and returns false then. apart: 1, or stage_slices for the first k-tile of
/// every stage.
template <class Fn>
CODA_HD bool each_k_tile(const Slices& slices, int tiles, int together, int apart, const Fn& fn) {
    const int partials = slices.partials();
    for (int first = 0; first < tiles; first += together)
        for (int from = 0; from < slices.number; from += partials)
            for (int tile = first; tile < first + together && tile < tiles; ++tile)
                for (int slice = from; slice < from + partials; slice += apart)
                    if (!fn(KTile{tile, slice})) return false;
    return true;
}
/// A consumer warp's k-tiles where each_k_tile takes one tile at a time, in order. Its own are m = warp, warp + 8, ...
/// of the SM's; as the slices of a tile divide the number of warps, or are a multiple of it, no m is divided.
class OwnKTiles {
  public:
    CODA_HD OwnKTiles(const Slices& slices, int warp)
        : rounds_(slices.rounds()),
          tile_step_(kConsumerWarps / slices.partials()),
          first_slice_(warp % slices.partials()),
          tile_(warp / slices.partials()) {}

    CODA_HD int tile() const { return tile_; }  // as an index among the SM's own
    CODA_HD int slice() const { return first_slice_ + round_ * kConsumerWarps; }
    CODA_HD int round() const { return round_; }  // of the warp's slices of the tile
    CODA_HD bool ends_tile() const { return round_ == rounds_ - 1; }
    CODA_HD void advance() {
        if (++round_ < rounds_) return;
        round_ = 0;
        tile_ += tile_step_;
    }

  private:
    int rounds_, tile_step_, first_slice_, tile_, round_ = 0;
};

/// A word's epoch says which op of which step of which launch wrote it. `first` is the launch's first epoch, and not 0,
/// which words have that nobody has written.
CODA_HD std::uint32_t epoch_of(std::uint32_t first, int ops, int step, int op) {
    return first + static_cast<std::uint32_t>(step * ops + op);
}

/// The length of a sequence in a step of a launch if it still runs then; 0 if it did not run at the start. All work is
/// laid out by this number, which no choice of a token changes.
CODA_HD int planned_length(bool running, int start, int step, int context) {
    if (!running) return 0;
    return start + step < context ? start + step : context;
}

/// The positions that the newest token of a sequence sees: so many of its last ones.
CODA_HD int visible_positions(int length, int window) { return length < window ? length : window; }

}  // namespace coda::hopper::decode
