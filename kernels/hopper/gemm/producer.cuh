// The TMA warps of a GEMM kernel: one thread fills the operand ring; one thread per consumer warpgroup, its mover,
// loads and stores the epilogue tiles in that warpgroup's slots, so that consumers never wait for a store.
#pragma once

#include "kernels/hopper/gemm/arguments.h"
#include "kernels/hopper/gemm/operand_tile.cuh"
#include "kernels/hopper/gemm/shared_layout.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/tma.cuh"
#include "kernels/hopper/sm90/ring.cuh"

namespace coda::hopper {

/// Operand stages: this CTA's shares of the A and B tiles.
template <class Program, TileConfig tile, Major kMajorA, Major kMajorB>
__device__ __forceinline__ void load_operands(const GemmArguments<Program>& arguments,
                                              const SharedLayout<Program, tile>& shared, int cluster, int clusters,
                                              int rank) {
    const int rank_m = tile.rank_m(rank), rank_n = tile.rank_n(rank);
    std::uint16_t row = 0, column = 0;
#pragma unroll
    for (int other = 0; other < tile.cluster(); ++other) {
        if (tile.rank_m(other) == rank_m) row |= 1u << other;
        if (tile.rank_n(other) == rank_n) column |= 1u << other;
    }
    // NOTE: other CTAs read the same rows and columns, soon or after many epilogue tiles have passed through L2.
    const std::uint64_t keep_in_l2 = ptx::evict_last_policy();
    const TileOfA<tile, kMajorA> a{&arguments.a, keep_in_l2, rank_n, row};
    const TileOfB<tile, kMajorB> b{&arguments.b, keep_in_l2, rank_m, column};

    Ring<tile.stages> ring;
    for (int t = cluster; t < arguments.order.count(); t += clusters) {
        const TileIndex index = arguments.tile(t);
        const int first_row = index.m * tile.cluster_rows() + tile.rank_row(rank) + index.first_row(kPanelRows);
        const int first_column = index.n * tile.cluster_columns() + tile.rank_column(rank);
        const int first_k = index.split * arguments.k_tiles * tile.k();
        for (int k_tile = 0; k_tile < arguments.k_tiles; ++k_tile) {
            const int k = first_k + (Program::kLastFirst ? arguments.k_tiles - 1 - k_tile : k_tile) * tile.k();
            // Wait empty, load A and B
            const int stage = ring.index;
            ptx::mbarrier_wait(shared.empty(stage), ring.parity ^ 1);
            ptx::mbarrier_arrive_expect(shared.full(stage), tile.stage_bytes());
            a.load(shared.a(stage), first_row, k, shared.full(stage));
            b.load(shared.b(stage), first_column, k, shared.full(stage));
            ring.advance();
        }
    }
}

/// Walks the sub-tiles of one consumer warpgroup in the order in which the consumer visits them.
template <class Program, TileConfig tile>
class SubTiles {
  public:
    __device__ SubTiles(const GemmArguments<Program>& arguments, int cluster, int clusters, int rank, int consumer)
        : arguments_(arguments),
          stride_(kCooperative ? clusters : kConsumers * clusters),
          row_in_cluster_(tile.rank_row(rank) + (kCooperative ? consumer * tile.warpgroup_rows() : 0)),
          column_in_cluster_(tile.rank_column(rank)),
          tile_number_((kCooperative ? cluster : cluster + consumer * clusters) - stride_) {}

    /// Goes to the first or the next sub-tile. False after the last one.
    __device__ bool next() {
        if (++sub_ < count_) return true;
        tile_number_ += stride_;
        if (tile_number_ >= arguments_.order.count()) return false;
        begin_tile();
        return true;
    }
    /// First row and column of the accumulators. With parts of K, the row counts through the results of all parts.
    __device__ int row() const { return row_ + sub_ / kAcross * kPanelRows; }
    __device__ int column() const { return column_ + sub_ % kAcross * Program::Slot::kColumns; }

  private:
    static constexpr int kAcross = tile.n / Program::Slot::kColumns;
    static constexpr int kCount = tile.warpgroup_rows() / kPanelRows * kAcross;
    static constexpr bool kCooperative = tile.specialization == WarpSpecialization::cooperative;

    __device__ void begin_tile() {
        sub_ = 0;
        const TileIndex index = arguments_.tile(tile_number_);
        row_ = index.m * tile.cluster_rows() + row_in_cluster_ + index.first_row(kPanelRows);
        if constexpr (Program::kSplits) row_ += index.split * arguments_.split_rows;
        column_ = index.n * tile.cluster_columns() + column_in_cluster_;
        count_ = index.whole() ? kCount : kCount / 2;
    }

    const GemmArguments<Program>& arguments_;
    int stride_, row_in_cluster_, column_in_cluster_, tile_number_;
    int sub_ = -1, row_ = 0, column_ = 0, count_ = 0;
};

/// Serves the epilogue slots of one consumer: loads ahead of it, stores after it. A slot is loaded again once its
/// stores have read it. If the program loads nothing, the slot is handed over empty.
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

    // NOTE: epilogue tiles pass through L2 once, and would push the operands out. Transposed ones, whose rows are
    // short, are loaded without that policy: LinearSwigluBackwardF8 took 1% longer with it.
    const std::uint64_t leave_l2 = ptx::evict_first_policy();

    Cursor load(arguments, cluster, clusters, rank, consumer);
    const auto prepare = [&](int slot) {
        if (!load.next()) return;
        if (load_bytes == 0) {
            ptx::mbarrier_arrive(shared.ready(consumer, slot));
        } else {
            ptx::mbarrier_arrive_expect(shared.ready(consumer, slot), load_bytes);
#pragma unroll
            for (int panel = 0; panel < Slot::kPanels; ++panel) {
                if (!(use.load >> panel & 1)) continue;
                const std::uint32_t target = shared.slot(consumer, slot) + Slot::offset(panel);
                const int column = Slot::panel(panel).column(load.column());
                if constexpr (Slot::kTransposes) {
                    if (Slot::transposed(panel)) {
                        ptx::tma_load(target, &arguments.load[panel], load.row(), column, shared.ready(consumer, slot));
                        continue;
                    }
                }
                ptx::tma_load(target, &arguments.load[panel], column, load.row(), shared.ready(consumer, slot),
                              leave_l2);
            }
        }
    };

    // NOTE: one loop does both the first loads and the rounds after them: two loops need more registers than there are.
    Cursor store(arguments, cluster, clusters, rank, consumer);
    Ring<tile.slots> ring;
    for (int loaded = 0;; ring.advance()) {
        const int slot = ring.index;
        if (loaded < tile.slots) {
            ++loaded;
        } else {
            // Wait written, store or add
            if (!store.next()) return;
            ptx::mbarrier_wait(shared.written(consumer, slot), ring.parity ^ 1);
#pragma unroll
            for (int panel = 0; panel < Slot::kPanels; ++panel) {
                if (!(use.store >> panel & 1)) continue;
                const std::uint32_t source = shared.slot(consumer, slot) + Slot::offset(panel);
                const int column = Slot::panel(panel).column(store.column());
                if constexpr (Slot::kTransposes) {
                    if (Slot::transposed(panel)) {
                        ptx::tma_store(&arguments.store[panel], source, store.row(), column, leave_l2);
                        continue;
                    }
                }
                if (use.add >> panel & 1) {
                    ptx::tma_reduce_add(&arguments.store[panel], source, column, store.row());
                } else {
                    ptx::tma_store(&arguments.store[panel], source, column, store.row(), leave_l2);
                }
            }
            // Wait until TMA has read the slot: it is free
            ptx::tma_store_commit();
            ptx::tma_store_wait_read<0>();
        }
        // Load the slot's next tiles
        prepare(slot);
    }
}

}  // namespace coda::hopper
