// What the roles of attention_forward share (arguments, shared memory, the work of a block), and the role of a thread
// of warpgroup 0: the loader. The whole is described in forward.cuh.
#pragma once

#include <cuda.h>

#include "kernels/hopper/attention/codes.cuh"
#include "kernels/hopper/attention/forward_tile.h"
#include "kernels/hopper/ptx/bulk.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/ptx/shared_vectors.cuh"
#include "kernels/hopper/sm90/ring.cuh"

namespace coda::hopper {

struct ForwardArguments {
    CUtensorMap query, key_value, out;
    const std::int32_t* doc_start;  // (M), null without documents
    float* lse;                     // (H, M)
    unsigned* next_tile;            // the counter of ForwardOrder
    std::int64_t lse_ld;
    int seq_len, heads, kv_heads;
    float scale;  // 1 / sqrt(head_dim)
    ForwardOrder order;
};

template <class Tile>
using ForwardArgumentsOf = AndCodes<Tile, ForwardArguments>;

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
    __device__ std::uint32_t work(int stage) const { return barrier(Tile::kBarriers) + stage * Tile::kWorkBytes; }

  private:
    __device__ std::uint32_t barrier(int index) const { return key(2 * Tile::kStages) + Tile::kOutBytes + 8 * index; }
};

/// A tile's place, which the loader hands with the queries to the consumers and to the warps that store codes.
struct ForwardWork {
    int sequence;  // negative: there are no more tiles
    int head;
    int query;        // first query of the tile; negative: the tile begins before the sequence
    int first_block;  // the first key block that some query of the tile may see

    __device__ __forceinline__ bool ends() const { return sequence < 0; }
    /// The last key block that some query of the tile may see.
    template <class Tile>
    __device__ __forceinline__ int last_block(int seq_len) const {
        return (min(query + Tile::kQueries, seq_len) - 1) / Tile::kKeys;
    }
};

template <class Tile, bool kDocuments>
__device__ __forceinline__ ForwardWork forward_work(const ForwardArguments& arguments, int index) {
    if (index >= arguments.order.count()) return {-1, 0, 0, 0};
    const ForwardOrder::Work work = arguments.order.at(index);
    const int sequence = work.pair / arguments.kv_heads, kv_head = work.pair % arguments.kv_heads;
    const int query = arguments.order.first_query<Tile>(work);
    const int start =
        kDocuments
            ? __ldg(arguments.doc_start + static_cast<std::int64_t>(sequence) * arguments.seq_len + max(query, 0))
            : 0;
    return {sequence, kv_head * arguments.order.group + work.head_in_group, query, start / Tile::kKeys};
}

/// Loads tile after tile. The index of the next tile is drawn when a tile's queries are on their way, so that its keys
/// and values load while the counter answers.
template <class Tile, bool kDocuments>
__device__ __forceinline__ void forward_load(const ForwardArguments& arguments, const ForwardShared<Tile>& shared) {
    Ring<Tile::kStages> ring;
    Ring<Tile::kQueryStages> queries;
    int index = static_cast<int>(blockIdx.x);
    for (;;) {
        const ForwardWork work = forward_work<Tile, kDocuments>(arguments, index);
        const std::uint32_t query_full = shared.query_full(queries.index);
        // Wait empty, hand the tile's place over
        ptx::mbarrier_wait(shared.query_empty(queries.index), queries.parity ^ 1);
        ptx::store_shared_integers(shared.work(queries.index),
                                   {work.sequence, work.head, work.query, work.first_block});
        if (work.ends()) return ptx::mbarrier_arrive(query_full);
        // Load queries
        ptx::mbarrier_arrive_expect(query_full, Tile::kQueryBytes);
#pragma unroll
        for (int panel = 0; panel < Tile::kPanels; ++panel)
            ptx::tma_load(shared.query(queries.index) + panel * Tile::kQueryPanelBytes, &arguments.query,
                          work.head * Tile::kHeadDim + 64 * panel, work.query, work.sequence, query_full);
        queries.advance();
        // Draw the next tile
        const unsigned drawn = atomicInc(arguments.next_tile, arguments.order.last_draw());

        const int key_column = (arguments.heads + work.head / arguments.order.group) * Tile::kHeadDim;
        const int value_column = key_column + arguments.kv_heads * Tile::kHeadDim;
        const auto load = [&](std::uint32_t to, std::uint32_t barrier, int column, int block) {
#pragma unroll
            for (int panel = 0; panel < Tile::kPanels; ++panel)
                ptx::tma_load(to + panel * Tile::kKeyPanelBytes, &arguments.key_value, column + 64 * panel,
                              block * Tile::kKeys, work.sequence, barrier);
        };
#pragma unroll 1
        for (int block = work.last_block<Tile>(arguments.seq_len); block >= work.first_block; --block) {
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
        index = ForwardOrder::index(drawn, static_cast<int>(gridDim.x));
    }
}

}  // namespace coda::hopper
