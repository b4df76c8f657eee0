// The tile configurations of the programs, in one table, with the reason measured on an H200 (M = 32768).
//
// Under sustained load the GPU's power limit bounds plain products, and all tiles lie within 5%: pingpong 128x192 is
// quickest (685 TFLOP/s at N 3072, K 2048), then cooperative 128x256 (674), then pingpong 128x128 (664), which moves
// most bytes per product. What sets them apart besides is the epilogue: pingpong hides it, while cooperative exposed
// 20% of the time of a cross-entropy at K 2048. With 128 accumulators a thread the 128x128 tile leaves registers for
// any epilogue; 192 spill in those that load tiles unless they take few pairs at a time and have no vectors over N.
//
// Orders were measured too: docs/ATTEMPTS.md.
#pragma once

#include "kernels/hopper/sm90/tile_config.h"

namespace coda::hopper::tiles {

using enum WarpSpecialization;

// `rate`: relative speed where a shape fills the machine, by which launch_quickest chooses; `fixed`: what a tile's
// epilogue costs on top, in elements of K.

// The tile of programs that L2 bounds, where they have registers for it: 192 rows a consumer, and two CTAs side by side
// share A.
constexpr TileConfig three_blocks(Raster raster) {
    return {.m = 192,
            .n = 128,
            .stages = 4,
            .slots = 3,
            .specialization = pingpong,
            .cluster_m = 1,
            .cluster_n = 2,
            .raster = raster};
}

// Programs that only store.
struct Wide {
    static constexpr TileConfig config{.m = 128, .n = 256, .stages = 4, .slots = 2, .raster = {.panel_columns = 2048}};
    static constexpr double rate = 1.0, fixed = 100;
};
// As cuBLAS has it: two CTAs side by side share A. Quicker than Wide by 1.6% at 8192³, slower by 4% at K 2048.
struct Tall {
    static constexpr TileConfig config{
        .m = 256, .n = 128, .stages = 4, .slots = 2, .cluster_m = 1, .cluster_n = 2, .raster = {.panel_columns = 2048}};
    static constexpr double rate = 1.01, fixed = 150;
};
struct Medium {
    static constexpr TileConfig config{
        .m = 128, .n = 192, .stages = 5, .slots = 1, .specialization = pingpong, .raster = {.group_rows = 2048}};
    static constexpr double rate = 1.0, fixed = 40;
};
struct Square {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 6, .slots = 2, .specialization = pingpong, .raster = {.panel_columns = 2048}};
    static constexpr double rate = 0.97, fixed = 0;
};
// For N 2048 and 4096, of which 192 is no divisor: 0.98 to 1.02 of cuBLAS from K 4096 to 8192, where those above
// are 1.01 to 1.06. At K 2048 Square is as quick, from K 16384 on Tall.
struct ThreeBlocks {
    static constexpr TileConfig config = three_blocks({.panel_columns = 2048});
    static constexpr double rate = 0.99, fixed = 80;
};

// The head: N is a vocabulary. Two CTAs side by side share A, and groups of rows pass under all of B: 1.01 of cuBLAS at
// K 2048, where pairs over each other in panels of columns were 1.03 to 1.06. A third slot was worth more than a sixth
// stage with an epilogue that saw the whole row of a tile before it filled the first slot; it has not been measured
// again since every slot is filled as it comes.
struct CrossEntropy {
    static constexpr TileConfig config{.m = 128,
                                       .n = 128,
                                       .stages = 5,
                                       .slots = 3,
                                       .specialization = pingpong,
                                       .cluster_m = 1,
                                       .cluster_n = 2,
                                       .raster = {.group_rows = 2048}};
    static constexpr double rate = 1.0, fixed = 0;
};

// Reads a quarter less than 128x128: 26.5 -> 25.7 ms and 26.0 -> 25.6. The selects of a ragged vocabulary would spill.
struct CrossEntropyTall {
    static constexpr TileConfig config = three_blocks({.group_rows = 2048});
    static constexpr double rate = 1.03, fixed = 0;
};

// Slots of 4 KiB. Quicker than 128x128 by 4% at N 3072, K 2048 and N 6144, K 4096.
struct Rope {
    static constexpr TileConfig config{
        .m = 128, .n = 192, .stages = 5, .slots = 3, .specialization = pingpong, .raster = {.panel_columns = 2304}};
    static constexpr double rate = 1.0, fixed = 0;
};

// Gated outputs: slots of 6 KiB.
struct Swiglu {
    static constexpr TileConfig config{
        .m = 128, .n = 192, .stages = 5, .slots = 2, .specialization = pingpong, .raster = {.group_rows = 2048}};
    static constexpr double rate = 1.0, fixed = 0;
};

// Programs that load tiles. Stages matter more than slots: six are 3000 cycles of a 128x128 tile's products, which
// covers the latency of memory under load; with four the tensor cores idled a third of the time.
struct InPlace {
    static constexpr TileConfig config = Square::config;
    static constexpr double rate = 1.0, fixed = 0;
};
// Reads a fifth less than 128x128. At K 2048 both are 1.04 of cuBLAS; when the program stored x times the norm's weight
// as well, this one was 2% quicker at K 4096, 4% at K 8192 and 8% at K 14336, where it passed a cooperative 256x128 by
// 6%.
struct ResidualRms {
    static constexpr TileConfig config = three_blocks({.panel_columns = 2048});
    static constexpr double rate = 1.053, fixed = 206;
};
struct RmsBackward {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 5, .slots = 3, .specialization = pingpong, .raster = {.panel_columns = 2048}};
    static constexpr double rate = 0.93, fixed = 0;
};
// Long products: the epilogue no longer counts, and the wide tile reads less: 9% slower than 128x128 at K 3072, 5%
// quicker at K 16384.
struct RmsBackwardWide {
    static constexpr TileConfig config{.m = 128, .n = 256, .stages = 3, .slots = 4, .raster = {.panel_columns = 2048}};
    static constexpr double rate = 1.0, fixed = 500;
};
// Bound by L2: 192x128 with A shared reads a quarter less than 128x128, and is 2 to 6% quicker at N 8192, K 2048.
struct SwigluBackward {
    static constexpr TileConfig config = three_blocks({.panel_columns = 2048});
    static constexpr double rate = 1.0, fixed = 0;
};
// Slots of 12 KiB, and no registers for more rows.
struct SwigluBackwardAndY {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 5, .slots = 2, .specialization = pingpong, .raster = {.group_rows = 2048}};
    static constexpr double rate = 1.0, fixed = 0;
};

// Weight gradients: K is the number of tokens, and neither operand is small.
struct GradientWide {
    static constexpr TileConfig config{.m = 128, .n = 256, .stages = 4, .slots = 2};
    static constexpr double rate = 0.98, fixed = 50;
};
struct GradientNarrow {
    static constexpr TileConfig config{.m = 128, .n = 192, .stages = 4, .slots = 2};
    static constexpr double rate = 0.97, fixed = 0;
};

}  // namespace coda::hopper::tiles
