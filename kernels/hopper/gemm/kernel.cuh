// gemm_kernel - a GEMM whose epilogue is a program
//
//   acc = A B, A (M, K), B (K, N), bf16 or FP8 -> fp32;  outputs = Program(acc)
//
// Roles      warpgroup 0: warp 0 loads operands, warps 1 and 2 move the tiles of the consumers' slots  (40 registers)
//            warpgroups 1-2: wgmma + epilogue                                                         (232 registers)
// Pipelines  operands  TMA -> consumers    full: 1 arrive + bytes   empty: 1 arrive per consuming warp of every CTA
//                                                                   to which this one sends by multicast
//            slots     mover -> consumer   ready: 1 arrive + bytes  written: 1 arrive per warp of the consumer
//            turn      pingpong only: the other consumer has issued its tile's GEMM, 1 arrive per warp
// Timeline   load     per k-tile: wait empty, expect bytes, multicast this CTA's shares of A and B
//            consume  per k-tile: wait full, wgmma, keep one group in flight, release the previous stage
//                     per sub-tile: wait ready, visit accumulators, hand the slot over
//                     tiles that overlap: between the pairs of sub-tiles, k-tiles of the next tile
//            move     per sub-tile: wait written, store, wait until read, load the slot's next tiles
// Shared     operand ring | slots of each consumer | scratch | barriers: shared_layout.cuh
//
// A slot is the shared memory of one epilogue sub-tile (epilogue/slot.h). A mover is the thread that loads and stores
// one consumer's slots. Pingpong consumers take turns on the tensor cores, one tile per turn.
//
// Persistent: cluster c takes tiles c, c + clusters, ... of the order. Each pingpong consumer takes every other tile of
// its cluster.
#pragma once

#include "kernels/hopper/gemm/consumer.cuh"
#include "kernels/hopper/gemm/producer.cuh"
#include "kernels/hopper/ptx/cluster.cuh"
#include "kernels/hopper/ptx/dependent_launch.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

inline constexpr int kProducerRegisters = 40;
inline constexpr int kConsumerRegisters = 232;

template <class Program, TileConfig tile>
__device__ __forceinline__ void initialise_barriers(const SharedLayout<Program, tile>& shared) {
    constexpr int kReaders = tile.specialization == WarpSpecialization::cooperative ? 4 * kConsumers : 4;
    for (int stage = 0; stage < tile.stages; ++stage) {
        ptx::mbarrier_init(shared.full(stage), 1);
        ptx::mbarrier_init(shared.empty(stage), kReaders * tile.sharers());
    }
    for (int consumer = 0; consumer < kConsumers; ++consumer) {
        for (int slot = 0; slot < tile.slots; ++slot) {
            ptx::mbarrier_init(shared.ready(consumer, slot), 1);
            ptx::mbarrier_init(shared.written(consumer, slot), 4);
        }
        ptx::mbarrier_init(shared.turn(consumer), 4);
    }
    ptx::fence_mbarrier_init();
}

/// The rows of a consumer's part of a tile.
template <class Program, TileConfig tile>
__device__ __forceinline__ Rows rows_of(const GemmArguments<Program>& arguments,
                                        const SharedLayout<Program, tile>& shared, const TileIndex& index, int rank,
                                        const Thread& thread) {
    const int row =
        index.m * tile.cluster_rows() + tile.rank_row(rank) + index.first_row(kPanelRows) +
        (tile.specialization == WarpSpecialization::cooperative ? thread.warpgroup * tile.warpgroup_rows() : 0);
    return {thread,
            row + Fragment::row(thread.warp, thread.lane, 0),
            arguments.m,
            index.n * tile.cluster_columns() + tile.rank_column(rank),
            tile.n,
            arguments.n,
            shared.scratch(thread.warpgroup)};
}

/// Reads warp and lane again, so that no address made of them takes a register during the GEMM before.
__device__ __forceinline__ void read_again(Thread& thread) {
    const int index = ptx::thread_index();
    thread.warp = __shfl_sync(kAllLanes, index / 32 % 4, 0);
    thread.lane = index % 32;
}

template <class Program, TileConfig tile, Major kMajorA, Major kMajorB>
__device__ __forceinline__ void consume(const GemmArguments<Program>& arguments,
                                        const SharedLayout<Program, tile>& shared, int cluster, int clusters, int rank,
                                        const Thread& thread) {
    constexpr bool kCooperative = tile.specialization == WarpSpecialization::cooperative;
    const int consumer = thread.warpgroup;
    Ring<tile.stages> operands;
    Ring<tile.slots> slots;
    std::uint32_t turn = consumer == 0 ? 1 : 0;  // the first consumer does not wait for its first turn
    if (!kCooperative && consumer == 1) operands.advance(arguments.k_tiles);
    const bool releases = thread.lane < tile.cluster() && tile.share(rank, thread.lane);

    const int first = kCooperative ? cluster : cluster + consumer * clusters;
    const int stride = kCooperative ? clusters : kConsumers * clusters;
    for (int t = first; t < arguments.order.count(); t += stride) {
        Rows rows = rows_of(arguments, shared, arguments.tile(t), rank, thread);
        Program program(arguments.program);
        program.load_rows(rows);

        Accumulators<tile> acc;
        constexpr int kBlocks = Accumulators<tile>::kBlocks;
        constexpr bool kHalves = Program::kHalves && kBlocks == 2;
        const auto issued = [&] {
            if (!kCooperative && thread.lane == 0) ptx::mbarrier_arrive(shared.turn(1 - consumer));
        };
        const int a_offset = kCooperative ? consumer * tile.warpgroup_rows() * kPanelRowBytes : 0;
        const auto gemm = [&]<int kOf>() {
            multiply<kOf, Program, tile, kMajorA, kMajorB>(shared, operands, arguments.k_tiles, a_offset, releases,
                                                           thread.lane, acc, issued);
        };
        if constexpr (!kCooperative) {
            ptx::mbarrier_wait(shared.turn(consumer), turn);
            turn ^= 1;
        }
        const auto whole = [&] { return !kHalves || arguments.order.whole(t); };
        if (whole()) {
            gemm.template operator()<kBlocks>();
        } else if constexpr (kHalves) {
            gemm.template operator()<kBlocks / 2>();
        }
        if constexpr (!kCooperative) operands.advance(arguments.k_tiles);
        // NOTE: where every tile, and half of one, goes through the ring an even number of times, each begins at the
        // ring's start. Set here, the position takes no registers during the GEMM.
        constexpr int kSubTiles = kBlocks * tile.n / Program::Slot::kColumns / (kHalves ? 2 : 1);
        if constexpr (kSubTiles % (2 * tile.slots) == 0) slots = {};
        if constexpr (tile.crowded()) read_again(rows.thread);
        finish<Program, tile>(program, shared, slots, rows, whole, acc, [] {});
    }
}

/// consume for tiles with promotion. The next tile can begin during an epilogue, in the second set of accumulators.
template <class Program, TileConfig tile>
__device__ __forceinline__ void consume_promoted(const GemmArguments<Program>& arguments,
                                                 const SharedLayout<Program, tile>& shared, int cluster, int clusters,
                                                 int rank, const Thread& thread) {
    Ring<tile.stages> operands;
    Ring<tile.slots> slots;
    const bool releases = thread.lane < tile.cluster() && tile.share(rank, thread.lane);
    const int a_offset = thread.warpgroup * tile.warpgroup_rows() * kPanelRowBytes;
    const auto release = [&](int stage) {
        if (releases) ptx::mbarrier_arrive_remote(shared.empty(stage), thread.lane);
    };
    Begun<tile> begun;
    const auto begin_next = [&] {
        begun.stage = issue_next<1, Program, tile, Major::k, Major::k>(shared, operands, a_offset, release,
                                                                       begun.k_tiles, begun.stage, begun.partial);
        ++begun.k_tiles;
    };
    const auto whole = [] { return true; };
    for (int t = cluster; t < arguments.order.count(); t += clusters) {
        Rows rows = rows_of(arguments, shared, arguments.tile(t), rank, thread);
        Program program(arguments.program);
        program.load_rows(rows);
        Accumulators<tile> acc;
        multiply_promoted<Program, tile>(shared, operands, arguments.k_tiles, a_offset, release, thread.warpgroup, acc,
                                         begun);
        if constexpr (tile.overlaps) read_again(rows.thread);
        // NOTE: two copies of the epilogue, so that no wgmma is issued under a condition, where ptxas may serialise it.
        if (tile.overlaps && t + clusters < arguments.order.count() && arguments.k_tiles >= tile.ahead()) {
            finish<Program, tile>(program, shared, slots, rows, whole, acc, begin_next);
        } else {
            finish<Program, tile>(program, shared, slots, rows, whole, acc, [] {});
        }
    }
}

// NOTE: Tile is a type that holds the configuration, because nvcc cannot name kernels with a struct template argument.
template <class Program, class Tile, Major kMajorA, Major kMajorB>
__global__ void __launch_bounds__(kGemmThreads, 1)
    gemm_kernel(const __grid_constant__ GemmArguments<Program> arguments) {
    constexpr TileConfig tile = Tile::config;
    constexpr bool kF8 = is_f8(tile.operand_a);
    static_assert(kF8 ? is_f8(tile.operand_b) : tile.operand_a == DType::bf16 && tile.operand_b == DType::bf16,
                  "operands are bf16 or FP8 both");
    static_assert(!kF8 || (kMajorA == Major::k && kMajorB == Major::k), "wgmma reads FP8 operands only K-major");
    static_assert(kF8 || tile.promotion == 0, "bf16 products are summed in fp32");
    static_assert(tile.promotion > 0 || !tile.overlaps, "without promotion there are no free accumulators");
    static_assert(tile.n == 128 || tile.n == 192 || tile.n == 256, "wgmma.cuh has N of 128, 192 and 256");
    static_assert(tile.warpgroup_rows() % kPanelRows == 0, "a warpgroup multiplies blocks of 64 rows");
    static_assert(tile.n % Program::Slot::kColumns == 0, "sub-tiles divide the tile");

    extern __shared__ std::byte dynamic_shared[];
    const SharedLayout<Program, tile> shared(dynamic_shared);
    // NOTE: the shuffle tells the compiler that the value is the same in all lanes.
    const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int rank = tile.cluster() == 1 ? 0 : static_cast<int>(ptx::cluster_rank());
    const int cluster = static_cast<int>(blockIdx.x) / tile.cluster();
    const int clusters = static_cast<int>(gridDim.x) / tile.cluster();

    if (threadIdx.x == 0) {
        initialise_barriers<Program, tile>(shared);
        ptx::prefetch_tensor_map(&arguments.a);
        ptx::prefetch_tensor_map(&arguments.b);
    }
    __syncwarp();
    if constexpr (tile.cluster() == 1) {
        __syncthreads();
    } else {
        ptx::cluster_sync();
    }

    // NOTE: the code above this line runs while the previous kernel finishes, and touches no global memory.
    ptx::wait_on_dependencies();
    ptx::launch_dependents();

    if (warp < 4) {
        ptx::decrease_registers<kProducerRegisters>();
        if (warp == 0) {
            if (ptx::elect_one())
                load_operands<Program, tile, kMajorA, kMajorB>(arguments, shared, cluster, clusters, rank);
        } else if (warp <= kConsumers) {
            if (ptx::elect_one()) move_tiles<Program, tile>(arguments, shared, cluster, clusters, rank, warp - 1);
        }
        __syncwarp();
    } else {
        ptx::increase_registers<kConsumerRegisters>();
        const Thread thread{warp % 4, lane, warp / 4 - 1};
        if constexpr (tile.promotion == 0) {
            consume<Program, tile, kMajorA, kMajorB>(arguments, shared, cluster, clusters, rank, thread);
        } else {
            consume_promoted<Program, tile>(arguments, shared, cluster, clusters, rank, thread);
        }
    }
    // NOTE: no CTA leaves while its peer may still signal its barriers or multicast into its shared memory.
    if constexpr (tile.cluster() > 1) ptx::cluster_sync();
}

}  // namespace coda::hopper
