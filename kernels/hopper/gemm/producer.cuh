// The copy warps of a GEMM kernel: one thread fills the operand ring; one thread per consumer warpgroup moves that
// warpgroup's epilogue tiles, so that consumers never wait for a store.
#pragma once

#include "kernels/hopper/gemm/arguments.h"
#include "kernels/hopper/gemm/shared_layout.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/tma.cuh"
#include "kernels/hopper/sm90/ring.cuh"

namespace coda::hopper {

/// First row of this CTA's tile.
template <TileConfig tile>
__device__ __forceinline__ int tile_row(const TileIndex& index, int rank) {
    return (index.m * tile.cluster + rank) * tile.m;
}

/// Operand stages: A of this CTA, and this CTA's share of the B tile, sent to all CTAs of the cluster.
template <class Program, TileConfig tile, Major kMajorA, Major kMajorB>
__device__ __forceinline__ void load_operands(const GemmArguments<Program>& arguments,
                                              const SharedLayout<Program, tile>& shared, int cluster, int clusters,
                                              int rank) {
    // NOTE: an odd number of MN-major panels is shared by splitting each along K.
    constexpr int kPanelsB = tile.n / 64;
    constexpr bool kSplitK = kPanelsB % tile.cluster != 0;
    constexpr int kPanelRowsB = kSplitK ? kTileK / tile.cluster : kTileK;
    constexpr std::uint16_t kAll = (1u << tile.cluster) - 1;

    const std::uint64_t policy_a = arguments.a_once ? ptx::evict_first_policy() : ptx::evict_normal_policy();
    const std::uint64_t policy_b = arguments.keep_b ? ptx::evict_last_policy() : ptx::evict_normal_policy();
    const auto load_b = [&](std::uint32_t offset, int column, int row, int stage) {
        if constexpr (tile.cluster == 1) {
            ptx::tma_load(shared.b(stage) + offset, &arguments.b, column, row, shared.full(stage), policy_b);
        } else {
            ptx::tma_load_multicast(shared.b(stage) + offset, &arguments.b, column, row, shared.full(stage), kAll,
                                    policy_b);
        }
    };

    Ring<tile.stages> ring;
    for (int t = cluster; t < arguments.order.count(); t += clusters) {
        const TileIndex index = arguments.order.at(t);
        const int row = tile_row<tile>(index, rank);
        const int column = index.n * tile.n;
        for (int k_tile = 0; k_tile < arguments.k_tiles; ++k_tile) {
            const int k = k_tile * kTileK;
            const int stage = ring.index;
            ptx::mbarrier_wait(shared.empty(stage), ring.parity ^ 1);
            ptx::mbarrier_arrive_expect(shared.full(stage), tile.stage_bytes());
            if constexpr (kMajorA == Major::k) {
                ptx::tma_load(shared.a(stage), &arguments.a, k, row, shared.full(stage), policy_a);
            } else {
#pragma unroll
                for (int panel = 0; panel < tile.m / 64; ++panel)
                    ptx::tma_load(shared.a(stage) + panel * kMnPanelBytes, &arguments.a, row + panel * 64, k,
                                  shared.full(stage), policy_a);
            }
            if constexpr (kMajorB == Major::k) {
                constexpr int kRows = tile.n / tile.cluster;
                load_b(rank * kRows * kPanelRowBytes, k, column + rank * kRows, stage);
            } else if constexpr (kSplitK) {
#pragma unroll
                for (int panel = 0; panel < kPanelsB; ++panel)
                    load_b(panel * kMnPanelBytes + rank * kPanelRowsB * kPanelRowBytes, column + panel * 64,
                           k + rank * kPanelRowsB, stage);
            } else {
#pragma unroll
                for (int i = 0; i < kPanelsB / tile.cluster; ++i) {
                    const int panel = rank * (kPanelsB / tile.cluster) + i;
                    load_b(panel * kMnPanelBytes, column + panel * 64, k, stage);
                }
            }
            ring.advance();
        }
    }
}

/// Walks the sub-tiles of one consumer warpgroup in the order in which it visits them.
template <class Program, TileConfig tile>
struct SubTiles {
    static constexpr int kAcross = tile.n / Program::Slot::kColumns;
    static constexpr int kCount = tile.warpgroup_rows() / kPanelRows * kAcross;
    static constexpr bool kCooperative = tile.schedule == Schedule::cooperative;

    const TileOrder& order;
    int stride, rank, consumer;
    int tile_number;
    int sub = 0;
    TileIndex index{};

    __device__ SubTiles(const TileOrder& tiles, int cluster, int clusters, int cta_rank, int consumer_)
        : order(tiles),
          stride(kCooperative ? clusters : kConsumers * clusters),
          rank(cta_rank),
          consumer(consumer_),
          tile_number(kCooperative ? cluster : cluster + consumer_ * clusters) {
        if (valid()) index = order.at(tile_number);
    }
    __device__ bool valid() const { return tile_number < order.count(); }
    __device__ int row() const {
        return tile_row<tile>(index, rank) + (kCooperative ? consumer * tile.warpgroup_rows() : 0) +
               sub / kAcross * kPanelRows;
    }
    __device__ int column() const { return index.n * tile.n + sub % kAcross * Program::Slot::kColumns; }
    __device__ void advance() {
        if (++sub < kCount) return;
        sub = 0;
        tile_number += stride;
        if (valid()) index = order.at(tile_number);
    }
};

/// Epilogue slots of one consumer: loads ahead of it, stores behind it. A slot is loaded again once its stores have
/// read it; a slot of a program that loads nothing is handed over empty.
template <class Program, TileConfig tile>
__device__ __forceinline__ void move_tiles(const GemmArguments<Program>& arguments,
                                           const SharedLayout<Program, tile>& shared, int cluster, int clusters,
                                           int rank, int consumer) {
    using Slot = typename Program::Slot;
    using Cursor = SubTiles<Program, tile>;
    const PanelUse use = arguments.use;
    std::uint32_t load_bytes = 0;
#pragma unroll
    for (int panel = 0; panel < Slot::kPanels; ++panel)
        if (use.load >> panel & 1) load_bytes += Slot::panel(panel).bytes();

    // NOTE: tiles pass through once, and would push the operands out of L2.
    const std::uint64_t once = ptx::evict_first_policy();

    Cursor load(arguments.order, cluster, clusters, rank, consumer);
    const auto prepare = [&](int slot) {
        if (!load.valid()) return;
        if (load_bytes == 0) {
            ptx::mbarrier_arrive(shared.ready(consumer, slot));
        } else {
            ptx::mbarrier_arrive_expect(shared.ready(consumer, slot), load_bytes);
#pragma unroll
            for (int panel = 0; panel < Slot::kPanels; ++panel)
                if (use.load >> panel & 1)
                    ptx::tma_load(shared.slot(consumer, slot) + Slot::offset(panel), &arguments.load[panel],
                                  Slot::panel(panel).column(load.column()), load.row(), shared.ready(consumer, slot),
                                  once);
        }
        load.advance();
    };

    for (int slot = 0; slot < tile.slots; ++slot) prepare(slot);
    Ring<tile.slots> ring;
    for (Cursor store(arguments.order, cluster, clusters, rank, consumer); store.valid(); store.advance()) {
        const int slot = ring.index;
        ptx::mbarrier_wait(shared.written(consumer, slot), ring.parity);
#pragma unroll
        for (int panel = 0; panel < Slot::kPanels; ++panel) {
            if (!(use.store >> panel & 1)) continue;
            const std::uint32_t source = shared.slot(consumer, slot) + Slot::offset(panel);
            const int column = Slot::panel(panel).column(store.column());
            if (use.add >> panel & 1) {
                ptx::tma_reduce_add(&arguments.store[panel], source, column, store.row());
            } else {
                ptx::tma_store(&arguments.store[panel], source, column, store.row(), once);
            }
        }
        ptx::tma_store_commit();
        ptx::tma_store_wait_read<0>();
        prepare(slot);
        ring.advance();
    }
}

}  // namespace coda::hopper
