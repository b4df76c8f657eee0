// The tile configurations of the programs, in one table, each with its reason as measured on an H200 (M = 32768).
//
// Under sustained load the GPU's power limit bounds plain GEMMs, and all tiles lie within 5%: pingpong 128x192 is the
// fastest (685 TFLOP/s at N 3072, K 2048), then cooperative 128x256 (674), then pingpong 128x128 (664), which moves the
// most bytes per FLOP. The other difference is the epilogue: pingpong hides it, while with cooperative it was exposed
// for 20% of the time of a cross-entropy at K 2048. The 128x128 tile's 128 accumulators per thread leave registers for
// any epilogue. With 192, epilogues that load tiles spill unless they take few pairs at a time and have no vectors over
// N.
//
// The raster was measured too: docs/ATTEMPTS.md.
#pragma once

#include "kernels/hopper/sm90/tile_config.h"

namespace coda::hopper::tiles {

using enum WarpSpecialization;

// Kernels::choose (kernels.cuh) takes the tile of highest expected speed. `rate` is the relative speed where a shape
// fills the GPU. `fixed` is the extra cost of a tile's epilogue, in elements of K.

// The tile of programs that L2 bounds, where they have registers for it: 192 rows per consumer, and two CTAs side by
// side share A.
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

// Fewer bytes per FLOP than 128x128. The epilogue has few registers.
constexpr TileConfig medium(int stages, int slots, Raster raster) {
    return {.m = 128, .n = 192, .stages = stages, .slots = slots, .specialization = pingpong, .raster = raster};
}

// Programs that only store.
struct Wide {
    static constexpr TileConfig config{.m = 128, .n = 256, .stages = 4, .slots = 2, .raster = {.group_columns = 2048}};
    static constexpr double rate = 1.0, fixed = 100;
};
// As in cuBLAS, two CTAs side by side share A. Faster than Wide by 1.6% at 8192³, slower by 4% at K 2048.
struct Tall {
    static constexpr TileConfig config{
        .m = 256, .n = 128, .stages = 4, .slots = 2, .cluster_m = 1, .cluster_n = 2, .raster = {.group_columns = 2048}};
    static constexpr double rate = 1.01, fixed = 150;
};
struct Medium {
    static constexpr TileConfig config = medium(5, 1, {.group_rows = 2048});
    static constexpr double rate = 1.0, fixed = 40;
};
struct Square {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 6, .slots = 2, .specialization = pingpong, .raster = {.group_columns = 2048}};
    static constexpr double rate = 0.97, fixed = 0;
};
// For N 2048 and 4096, which 192 does not divide: 0.98 to 1.02 of cuBLAS's time from K 4096 to 8192, where the tiles
// above take 1.01 to 1.06. Square is as fast at K 2048, and Tall from K 16384 on.
struct ThreeBlocks {
    static constexpr TileConfig config = three_blocks({.group_columns = 2048});
    static constexpr double rate = 0.99, fixed = 80;
};

// The LM head: N is a vocabulary. Two CTAs side by side share A, and groups of rows pass under all of B: 1.01 of
// cuBLAS's time at K 2048, where two CTAs one above the other, in panels of columns, took 1.03 to 1.06.
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

// Reads a quarter less than 128x128: 26.5 -> 25.7 ms and 26.0 -> 25.6 ms. Not for a ragged vocabulary, whose selects
// would spill registers.
struct CrossEntropyTall {
    static constexpr TileConfig config = three_blocks({.group_rows = 2048});
    static constexpr double rate = 1.03, fixed = 0;
};

// Slots of 4 KiB. Faster than 128x128 by 4% at N 3072, K 2048 and N 6144, K 4096.
struct Rope {
    static constexpr TileConfig config = medium(5, 3, {.group_columns = 2304});
    static constexpr double rate = 1.0, fixed = 0;
};

// From K 576 to 2048, 128x192 computes a column in 0.84 to 0.93 of this tile's time (H100). The difference is larger
// than without a rotation, where it is 4%: angles add to what both read from L2.
struct RopeSquare {
    static constexpr TileConfig config = Square::config;
    static constexpr double rate = 0.88, fixed = 0;
};

// Gated outputs: slots of 6 KiB.
struct Swiglu {
    static constexpr TileConfig config = medium(5, 2, {.group_rows = 2048});
    static constexpr double rate = 1.0, fixed = 30;
};
// For short K, which leaves less time to store a tile: 7% faster at K 576, as fast at K 960.
struct SwigluShort {
    static constexpr TileConfig config = medium(4, 5, {.group_rows = 2048});
    static constexpr double rate = 0.97, fixed = 0;
};

// Slots of 8 KiB. 5% faster at K 768 than six stages and two slots.
struct Gelu {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 5, .slots = 4, .specialization = pingpong, .raster = {.group_columns = 2048}};
    static constexpr double rate = 1.0, fixed = 0;
};

// Programs that load tiles. Stages matter more than slots: six stages are 3000 cycles of a 128x128 tile's GEMM, which
// covers the latency of memory under load. With four stages the tensor cores idled for a third of the time.
struct InPlace {
    static constexpr TileConfig config = Square::config;
    static constexpr double rate = 1.0, fixed = 0;
};
// For N of 576 and 960, which 192 divides and 128 does not: of tiles of 128 columns, a tenth and a sixteenth would be
// computed in vain. LinearHeadDot also takes it at other N, where its tiles make fewer waves. Four stages are 3000
// cycles here too, and leave room for four slots.
struct InPlaceMedium {
    static constexpr TileConfig config = medium(4, 4, {.group_columns = 2304});
    static constexpr double rate = 0.96, fixed = 0;
};
// Reads a fifth less than 128x128. At K 2048 both take 1.04 of cuBLAS's time; at K 8192 this one takes 4% less.
struct ResidualRms {
    static constexpr TileConfig config = three_blocks({.group_columns = 2048});
    static constexpr double rate = 1.053, fixed = 206;
};
struct RmsBackward {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 5, .slots = 3, .specialization = pingpong, .raster = {.group_columns = 2048}};
    static constexpr double rate = 0.93, fixed = 0;
};
// Reads a fifth less than 128x128. Under sustained load up to 6% faster at N 2048 and 3072 on an H100, and up to 3% on
// an H200. Only the program without optional results has registers for pingpong.
struct RmsBackwardMedium {
    static constexpr TileConfig config = medium(4, 3, {.group_columns = 2304});
    static constexpr double rate = 0.97, fixed = 0;
};
// 4.18 -> 2.59 ms at N 576, K 49152, on an H100.
struct RmsBackwardMediumCooperative {
    static constexpr TileConfig config{.m = 128, .n = 192, .stages = 4, .slots = 3, .raster = {.group_columns = 2304}};
    static constexpr double rate = 0.97, fixed = 300;
};
// For large K, where the epilogue no longer counts and the wide tile reads less: on both GPUs slower than 128x128 at
// K 3072, as fast at K 4096, 2 to 4% faster at K 6144 and 5% at K 16384.
struct RmsBackwardWide {
    static constexpr TileConfig config{.m = 128, .n = 256, .stages = 3, .slots = 4, .raster = {.group_columns = 2048}};
    static constexpr double rate = 1.0, fixed = 300;
};
// Bound by L2: 192x128 with A shared reads a quarter less than 128x128, and is 2 to 6% faster at N 8192, K 2048.
struct SwigluBackward {
    static constexpr TileConfig config = three_blocks({.group_columns = 2048});
    static constexpr double rate = 1.0, fixed = 0;
};
// Slots of 12 KiB. There are no registers for more rows.
struct SwigluBackwardAndY {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 5, .slots = 2, .specialization = pingpong, .raster = {.group_rows = 2048}};
    static constexpr double rate = 1.0, fixed = 0;
};

// The wgrad: K is the number of tokens, and neither operand is small.
struct GradientWide {
    static constexpr TileConfig config{.m = 128, .n = 256, .stages = 4, .slots = 2};
    static constexpr double rate = 0.98, fixed = 50;
};
struct GradientNarrow {
    static constexpr TileConfig config{.m = 128, .n = 192, .stages = 4, .slots = 2};
    static constexpr double rate = 0.97, fixed = 0;
};
// For gradients whose rows 192 divides, such as 576, 960 and 6144, where tiles of 256 rows leave SMs idle.
struct GradientTall {
    static constexpr TileConfig config = three_blocks({});
    static constexpr double rate = 0.97, fixed = 0;
};

// FP8: K-tiles of as many bytes, so of twice as many elements, and wgmma of twice the speed. A tile takes the same
// shared memory and bandwidth, and its epilogue counts twice as much. A tile that bf16 has too keeps the rate of bf16.
constexpr TileConfig with_operands(TileConfig tile, DType a, DType b, int promotion) {
    tile.operand_a = a;
    tile.operand_b = b;
    tile.promotion = promotion;
    return tile;
}
template <class Tile, int kPromotion = 0, DType kA = DType::f8e4m3>
struct F8 {
    static constexpr TileConfig config = with_operands(Tile::config, kA, DType::f8e4m3, kPromotion);
    static constexpr double rate = Tile::rate, fixed = 2 * Tile::fixed;
};

// With promotion, a consumer has two sets of accumulators: 64 x 192 or 64 x 128 of them. Narrow has less shared-memory
// traffic, and Small divides the widths of most models.
struct PromotedNarrow {
    static constexpr TileConfig config{.m = 128, .n = 192, .stages = 4, .slots = 2, .raster = {.group_columns = 2304}};
    static constexpr double rate = 0.98, fixed = 50;
};
struct PromotedSmall {
    static constexpr TileConfig config{.m = 128, .n = 128, .stages = 5, .slots = 2, .raster = {.group_columns = 2048}};
    static constexpr double rate = 0.95, fixed = 50;
};
// The same with 2 x 2 CTAs, which load two thirds as much.
struct PromotedShared {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 5, .slots = 2, .cluster_m = 2, .cluster_n = 2, .raster = {.group_columns = 2048}};
    static constexpr double rate = 0.9, fixed = 50;
};

// LinearSwiglu from and to FP8: slots of 8 KiB. On an H100, 128x192 takes 0.97 of 128x128's time at N 16384, K 2048,
// and 0.89 at N 3072, K 576.
struct SwigluF8 {
    static constexpr TileConfig config = medium(4, 4, {.group_rows = 2048});
    static constexpr double rate = 1.0, fixed = 0;
};
struct SwigluF8Square {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 5, .slots = 4, .specialization = pingpong, .raster = {.group_columns = 2048}};
    static constexpr double rate = 0.95, fixed = 0;
};
// RmsBackward from FP8 with promotion. The tensor cores work through the epilogue, in the second set of accumulators.
// With the FP8 copies of dx, at 32768 x 2048 x 16384 under sustained load: 1.104 of cuBLASLt's time without the
// overlap, 1.066 with it.
struct RmsBackwardPromoted {
    static constexpr TileConfig config{
        .m = 128, .n = 192, .stages = 4, .slots = 3, .raster = {.group_columns = 2304}, .overlaps = true};
    static constexpr double rate = 0.98, fixed = 50;
};
struct RmsBackwardPromotedSmall {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 5, .slots = 3, .raster = {.group_columns = 2048}, .overlaps = true};
    static constexpr double rate = 0.95, fixed = 50;
};

// LinearSwigluBackward from and to FP8, with slots of 8 KiB: four of them are half of a tile. Other stages, slots and
// rasters are slower: docs/ATTEMPTS.md.
struct SwigluBackwardF8 {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 5, .slots = 4, .specialization = pingpong, .raster = {.group_columns = 2048}};
    static constexpr double rate = 1.0, fixed = 0;
};
struct SwigluBackwardF8Shared {
    static constexpr TileConfig config{.m = 128,
                                       .n = 128,
                                       .stages = 5,
                                       .slots = 4,
                                       .specialization = pingpong,
                                       .cluster_m = 1,
                                       .cluster_n = 2,
                                       .raster = {.group_columns = 2048}};
    static constexpr double rate = 0.99, fixed = 0;
};

}  // namespace coda::hopper::tiles
