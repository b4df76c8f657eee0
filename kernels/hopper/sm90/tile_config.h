// The tile of a GEMM kernel and what of shared memory it takes. Host and device.
#pragma once

#include "kernels/hopper/sm90/descriptor.h"
#include "kernels/hopper/sm90/limits.h"
#include "kernels/hopper/sm90/warp_roles.h"

namespace coda::hopper {

inline constexpr int kGemmThreads = kWarpgroupThreads * (1 + kConsumers);  // and one producer warpgroup

/// The order in which tiles are visited.
struct Raster {
    int group_rows = 0;     // rows of a group of tiles under which all columns pass; 0: by the size of the operands
    int group_columns = 0;  // not 0: groups of this many columns instead, under which all rows pass (of all
                            // columns, where all of B stays in L2)
};

struct TileConfig {
    int m = 128, n = 256;  // output tile of a CTA
    int stages = 4;        // of the operand ring
    int slots = 2;         // of each consumer warpgroup's epilogue ring
    WarpSpecialization specialization = WarpSpecialization::cooperative;
    int cluster_m = 2, cluster_n = 1;  // CTAs of a cluster: those in a column share B by multicast, those in a row A
    Raster raster{};
    DType operand_a = DType::bf16, operand_b = DType::bf16;  // bf16 both, or FP8 both, which are then K-major
    int promotion = 0;  // of FP8: elements of K whose sums the tensor cores make, before they are added in fp32; 0: all
    bool overlaps = false;  // with promotion: the tensor cores begin the next tile during an epilogue

    /// Elements of K per stage, a row of 128 bytes, and per wgmma, 32 bytes of it.
    CODA_HD constexpr int k() const { return kPanelRowBytes / element_bytes(); }
    CODA_HD constexpr int instruction_k() const { return 32 / element_bytes(); }
    CODA_HD constexpr int element_bytes() const { return operand_a == DType::bf16 ? 2 : 1; }

    /// k-tiles of the next tile that a consumer issues during an epilogue: one per two pairs of a thread's
    /// accumulators.
    CODA_HD constexpr int ahead() const { return overlaps ? n / 8 : 0; }

    CODA_HD constexpr int cluster() const { return cluster_m * cluster_n; }
    CODA_HD constexpr int cluster_rows() const { return m * cluster_m; }
    CODA_HD constexpr int cluster_columns() const { return n * cluster_n; }
    /// First row and column of a CTA's tile in its cluster's.
    CODA_HD constexpr int rank_row(int rank) const { return rank_m(rank) * m; }
    CODA_HD constexpr int rank_column(int rank) const { return rank_n(rank) * n; }
    CODA_HD constexpr int rank_m(int rank) const { return cluster_n == 1 ? rank : rank % cluster_m; }
    CODA_HD constexpr int rank_n(int rank) const { return cluster_n == 1 ? 0 : rank / cluster_m; }
    /// CTAs that load for each other, a CTA itself among them.
    CODA_HD constexpr int sharers() const { return cluster_m + cluster_n - 1; }
    CODA_HD constexpr bool share(int rank, int other) const {
        return sharers() == cluster() || rank_m(rank) == rank_m(other) || rank_n(rank) == rank_n(other);
    }

    CODA_HD constexpr int warpgroup_rows() const {
        return specialization == WarpSpecialization::cooperative ? m / kConsumers : m;
    }
    /// Of a consumer's thread, in registers.
    CODA_HD constexpr int accumulators() const { return warpgroup_rows() * n / kWarpgroupThreads; }
    /// So many accumulators that an epilogue has no registers to spare.
    CODA_HD constexpr bool crowded() const { return accumulators() >= 192; }
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
