// One operand's tile of a stage, as the CTAs of a cluster load it: each CTA loads a share and sends it to all CTAs that
// need the tile.
#pragma once

#include "kernels/hopper/ptx/tma.cuh"
#include "kernels/hopper/sm90/tile_config.h"

namespace coda::hopper {

/// A tile of kExtent rows (of A) or columns (of B) by kTileK (of FP8: by 128, K-major), which kSharers CTAs of a
/// cluster share. K-major: each CTA loads a part of the rows. MN-major: each CTA loads some of the panels of 64, or,
/// where kSharers does not divide the number of panels, a part of K of every panel.
template <Major kMajor, int kExtent, int kSharers, int kElementBytes>
struct OperandTile {
    static constexpr int kPanels = kExtent / 64;
    static constexpr bool kPartsOfK = kMajor == Major::mn && kPanels % kSharers != 0;

    /// The box of its tensor map.
    static constexpr int kBoxRows = kMajor == Major::k ? kExtent / kSharers : kPartsOfK ? kTileK / kSharers : kTileK;
    static constexpr int kBoxColumns = kPanelRowBytes / kElementBytes;

    const CUtensorMap* map;
    std::uint64_t policy;
    int share;                // this CTA's, in 0..kSharers
    std::uint16_t receivers;  // CTAs that share the tile, one bit per CTA

    /// Loads this CTA's share of the tile at (`first` of M or N, `k`) to shared address `tile`.
    __device__ __forceinline__ void load(std::uint32_t tile, int first, int k, std::uint32_t barrier) const {
        if constexpr (kMajor == Major::k) {
            copy(tile + share * kBoxRows * kPanelRowBytes, k, first + share * kBoxRows, barrier);
        } else if constexpr (kPartsOfK) {
#pragma unroll
            for (int panel = 0; panel < kPanels; ++panel)
                copy(tile + panel * kMnPanelBytes + share * kBoxRows * kPanelRowBytes, first + panel * 64,
                     k + share * kBoxRows, barrier);
        } else {
#pragma unroll
            for (int i = 0; i < kPanels / kSharers; ++i) {
                const int panel = share * (kPanels / kSharers) + i;
                copy(tile + panel * kMnPanelBytes, first + panel * 64, k, barrier);
            }
        }
    }

  private:
    __device__ __forceinline__ void copy(std::uint32_t destination, int column, int row, std::uint32_t barrier) const {
        if constexpr (kSharers == 1) {
            ptx::tma_load(destination, map, column, row, barrier, policy);
        } else {
            ptx::tma_load_multicast(destination, map, column, row, barrier, receivers, policy);
        }
    }
};

template <TileConfig tile, Major kMajor>
using TileOfA = OperandTile<kMajor, tile.m, tile.cluster_n, tile.element_bytes()>;
template <TileConfig tile, Major kMajor>
using TileOfB = OperandTile<kMajor, tile.n, tile.cluster_m, tile.element_bytes()>;

}  // namespace coda::hopper
