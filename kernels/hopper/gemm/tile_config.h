// The tile of a GEMM kernel and what of shared memory it takes. Host and device.
#pragma once

#include "kernels/hopper/sm90/descriptor.h"

namespace coda::hopper {

enum class Schedule : int {
    cooperative,  // both consumer warpgroups on one tile, each with half of its rows
    pingpong,     // each consumer warpgroup on a tile of its own: one's epilogue runs under the other's products
};

inline constexpr int kConsumers = 2;                     // consumer warpgroups
inline constexpr int kThreads = 128 * (1 + kConsumers);  // and one producer warpgroup
inline constexpr int kMaxSharedBytes = 227 * 1024;       // per block, by opt-in
inline constexpr int kPanelRows = 64;                    // rows of an epilogue panel: one m64 block

struct TileConfig {
    int m = 128, n = 256;  // output tile of a CTA
    int stages = 4;        // of the operand ring
    int slots = 2;         // of each consumer warpgroup's epilogue ring
    Schedule schedule = Schedule::cooperative;
    int cluster = 2;      // CTAs along M that share the B tile by multicast
    int group_m = 0;      // order of tiles: rows of tiles in a group; 0: by the size of the operands
    int panel_n = 0;      // order of tiles: if not 0, groups are panels of so many tiles along N instead
    bool keep_b = false;  // B is asked to stay in L2

    CODA_HD constexpr int warpgroup_rows() const { return schedule == Schedule::cooperative ? m / kConsumers : m; }
    CODA_HD constexpr int a_bytes() const { return m * kPanelRowBytes; }
    CODA_HD constexpr int b_bytes() const { return n * kPanelRowBytes; }
    CODA_HD constexpr int stage_bytes() const { return a_bytes() + b_bytes(); }
    CODA_HD constexpr int operand_bytes() const { return stages * stage_bytes(); }
};

/// Dynamic shared memory of a kernel: operand ring, epilogue slots, program scratch, barriers, and room to align the
/// start to the swizzle period.
CODA_HD constexpr int shared_bytes(const TileConfig& tile, int slot_bytes, int scratch_bytes) {
    const int barriers = 8 * (2 * tile.stages + 2 * kConsumers * tile.slots + kConsumers);
    return tile.operand_bytes() + kConsumers * (tile.slots * slot_bytes + scratch_bytes) + barriers + kSwizzleAtomBytes;
}

}  // namespace coda::hopper
