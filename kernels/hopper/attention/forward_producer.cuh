// What the roles of attention_forward share (arguments, shared memory, the work of a block), and the role of warpgroup
// 0: the loader. The whole is described in forward.cuh.
#pragma once

#include <cuda.h>

#include "kernels/hopper/attention/forward_tile.h"
#include "kernels/hopper/ptx/bulk.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/sm90/ring.cuh"

namespace coda::hopper {

struct ForwardArguments {
    CUtensorMap query, key_value, out;
    const std::int32_t* doc_start;  // (M), null without documents
    float* lse;                     // (H, M)
    std::int64_t lse_ld;
    int seq_len, heads, kv_heads;
    float scale;  // 1 / sqrt(head_dim)
    ForwardOrder order;
};

template <class Tile>
struct ForwardShared {
    std::uint32_t base;

    __device__ explicit ForwardShared(const void* dynamic) {
        const std::uint32_t address = ptx::shared_address(dynamic);
        base = (address + kSwizzleAtomBytes - 1) / kSwizzleAtomBytes * kSwizzleAtomBytes;
    }
    __device__ std::uint32_t query(int stage) const { return base + stage * Tile::kQueryBytes; }
    __device__ std::uint32_t key(int stage) const { return query(Tile::kQueryStages) + stage * Tile::kKeyBytes; }
    __device__ std::uint32_t value(int stage) const { return key(Tile::kStages + stage); }
    __device__ std::uint32_t out(int consumer) const {
        return key(2 * Tile::kStages) + consumer * Tile::kPanels * Tile::kOutPanelBytes;
    }
    __device__ std::uint32_t key_full(int stage) const { return barrier(stage); }
    __device__ std::uint32_t key_empty(int stage) const { return barrier(Tile::kStages + stage); }
    __device__ std::uint32_t value_full(int stage) const { return barrier(2 * Tile::kStages + stage); }
    __device__ std::uint32_t value_empty(int stage) const { return barrier(3 * Tile::kStages + stage); }
    __device__ std::uint32_t query_full(int stage) const { return barrier(4 * Tile::kStages + stage); }
    __device__ std::uint32_t query_empty(int stage) const {
        return barrier(4 * Tile::kStages + Tile::kQueryStages + stage);
    }

  private:
    __device__ std::uint32_t barrier(int index) const { return key(2 * Tile::kStages) + Tile::kOutBytes + 8 * index; }
};

/// One tile of work as every role sees it.
struct ForwardWork {
    int sequence, head, kv_head;
    int query;                    // first query of the tile
    int first_block, last_block;  // key blocks that some query of the tile may see, both included
};

template <class Tile, bool kDocuments>
__device__ __forceinline__ ForwardWork forward_work(const ForwardArguments& arguments, int index) {
    const ForwardOrder::Work work = arguments.order.at(index);
    const int sequence = work.pair / arguments.kv_heads, kv_head = work.pair % arguments.kv_heads;
    const int query = work.query_tile * Tile::kQueries;
    const int last = min(query + Tile::kQueries, arguments.seq_len) - 1;
    const int start =
        kDocuments ? __ldg(arguments.doc_start + static_cast<std::int64_t>(sequence) * arguments.seq_len + query) : 0;
    return {
        sequence,          kv_head * arguments.order.group + work.head_in_group, kv_head, query, start / Tile::kKeys,
        last / Tile::kKeys};
}

template <class Tile, bool kDocuments>
__device__ __forceinline__ void forward_load(const ForwardArguments& arguments, const ForwardShared<Tile>& shared) {
    Ring<Tile::kStages> ring;
    Ring<Tile::kQueryStages> queries;
    for (int round = 0;; ++round) {
        const int index = ForwardOrder::index(round, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
        if (round * static_cast<int>(gridDim.x) >= arguments.order.count()) break;
        if (index >= arguments.order.count()) continue;
        const ForwardWork work = forward_work<Tile, kDocuments>(arguments, index);
        const int key_column = (arguments.heads + work.kv_head) * Tile::kHeadDim;
        const int value_column = key_column + arguments.kv_heads * Tile::kHeadDim;
        const auto load = [&](std::uint32_t to, std::uint32_t barrier, int column, int block) {
#pragma unroll
            for (int panel = 0; panel < Tile::kPanels; ++panel)
                ptx::tma_load(to + panel * Tile::kKeyPanelBytes, &arguments.key_value, column + 64 * panel,
                              block * Tile::kKeys, work.sequence, barrier);
        };

        // Wait empty, load queries
        const std::uint32_t query_full = shared.query_full(queries.index);
        ptx::mbarrier_wait(shared.query_empty(queries.index), queries.parity ^ 1);
        ptx::mbarrier_arrive_expect(query_full, Tile::kQueryBytes);
#pragma unroll
        for (int panel = 0; panel < Tile::kPanels; ++panel)
            ptx::tma_load(shared.query(queries.index) + panel * Tile::kQueryPanelBytes, &arguments.query,
                          work.head * Tile::kHeadDim + 64 * panel, work.query, work.sequence, query_full);
        queries.advance();
#pragma unroll 1
        for (int block = work.last_block; block >= work.first_block; --block) {
            const int stage = ring.index;
            // Wait empty, load keys
            ptx::mbarrier_wait(shared.key_empty(stage), ring.parity ^ 1);
            ptx::mbarrier_arrive_expect(shared.key_full(stage), Tile::kKeyBytes);
            load(shared.key(stage), shared.key_full(stage), key_column, block);
            // Wait empty, load values
            ptx::mbarrier_wait(shared.value_empty(stage), ring.parity ^ 1);
            ptx::mbarrier_arrive_expect(shared.value_full(stage), Tile::kKeyBytes);
            load(shared.value(stage), shared.value_full(stage), value_column, block);
            ring.advance();
        }
    }
}

}  // namespace coda::hopper
