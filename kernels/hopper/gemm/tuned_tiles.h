// The tile configurations of the programs, in one table, with the reason measured on an H200 (M = 32768).
//
// Under sustained load the GPU's power limit, not its issue rate, bounds plain products, and all tiles lie within 4%:
// pingpong 128x192 is quickest (691 TFLOP/s at N 16384, K 2048), then cooperative 128x256 (659 there, 664 at 8192³),
// then pingpong 128x128 (678 there, 654 at 8192³). What sets them apart is the epilogue: pingpong hides it, while
// cooperative exposed 20% of the time of a cross-entropy at K 2048. With 128 accumulators a thread the 128x128 tile
// leaves registers for any epilogue; 192 spill in the heavier ones.
//
// Order and hints follow from the power limit too, as a byte from memory costs clock: tools/bench/NOTES.md.
#pragma once

#include "kernels/hopper/gemm/tile_config.h"

namespace coda::hopper::tiles {

// `rate`: relative speed where a shape fills the machine, by which launch_quickest chooses; `fixed`: what a tile's
// epilogue costs on top, in elements of K.

// Programs that only store.
struct Wide {
    static constexpr TileConfig config{
        .m = 128, .n = 256, .stages = 4, .slots = 2, .raster = {.panel_columns = 2048, .keep_b = true}};
    static constexpr double rate = 1.0, fixed = 100;
};
struct Tall {
    static constexpr TileConfig config{.m = 256,
                                       .n = 128,
                                       .stages = 4,
                                       .slots = 2,
                                       .cluster_m = 1,
                                       .cluster_n = 2,
                                       .raster = {.panel_columns = 2048, .keep_b = true}};
    static constexpr double rate = 1.0, fixed = 100;
};
struct Medium {
    static constexpr TileConfig config{.m = 128, .n = 192, .stages = 5, .slots = 1, .schedule = Schedule::pingpong};
    static constexpr double rate = 1.0, fixed = 40;
};
struct Square {
    static constexpr TileConfig config{.m = 128,
                                       .n = 128,
                                       .stages = 6,
                                       .slots = 2,
                                       .schedule = Schedule::pingpong,
                                       .raster = {.panel_columns = 2048, .keep_b = true}};
    static constexpr double rate = 0.98, fixed = 0;
};

// Gated outputs: slots of 6 KiB.
struct Swiglu {
    static constexpr TileConfig config{.m = 128, .n = 192, .stages = 5, .slots = 2, .schedule = Schedule::pingpong};
    static constexpr double rate = 1.0, fixed = 0;
};

// Programs that load tiles. Stages matter more than slots: six are 3000 cycles of a 128x128 tile's products, which
// covers the latency of memory under load; with four the tensor cores idled a third of the time.
struct InPlace {
    static constexpr TileConfig config = Square::config;
    static constexpr double rate = 1.0, fixed = 0;
};
struct RmsBackward {
    static constexpr TileConfig config{.m = 128,
                                       .n = 128,
                                       .stages = 5,
                                       .slots = 3,
                                       .schedule = Schedule::pingpong,
                                       .raster = {.panel_columns = 2048, .keep_b = true}};
    static constexpr double rate = 0.97, fixed = 0;
};
// Long products: the epilogue no longer counts, and the wide tile reads less.
struct RmsBackwardWide {
    static constexpr TileConfig config{.m = 128, .n = 256, .stages = 3, .slots = 4, .raster = {.keep_b = true}};
    static constexpr double rate = 1.0, fixed = 500;
};
struct RmsBackwardTall {
    static constexpr TileConfig config{
        .m = 256, .n = 128, .stages = 3, .slots = 4, .cluster_m = 1, .cluster_n = 2, .raster = {.keep_b = true}};
    static constexpr double rate = 0.9, fixed = 500;
};
struct SwigluBackward {
    static constexpr TileConfig config{.m = 128,
                                       .n = 128,
                                       .stages = 5,
                                       .slots = 2,
                                       .schedule = Schedule::pingpong,
                                       .raster = {.group_rows = 2048, .keep_b = true}};
    static constexpr double rate = 1.0, fixed = 0;
};

// Weight gradients: K is the number of tokens, and neither operand is small.
struct GradientWide {
    static constexpr TileConfig config{.m = 128, .n = 256, .stages = 4, .slots = 2};
    static constexpr double rate = 0.98, fixed = 50;
};
struct GradientTall {
    static constexpr TileConfig config{.m = 256, .n = 128, .stages = 4, .slots = 2, .cluster_m = 1, .cluster_n = 2};
    static constexpr double rate = 0.9, fixed = 50;
};
struct GradientNarrow {
    static constexpr TileConfig config{.m = 128, .n = 192, .stages = 4, .slots = 2};
    static constexpr double rate = 0.97, fixed = 0;
};

}  // namespace coda::hopper::tiles
