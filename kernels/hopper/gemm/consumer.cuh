// A consumer warpgroup of a GEMM kernel: the GEMM of its tile, then the program's epilogue on the accumulators.
#pragma once

#include "kernels/hopper/epilogue/program.cuh"
#include "kernels/hopper/gemm/arguments.h"
#include "kernels/hopper/gemm/shared_layout.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/roles.cuh"
#include "kernels/hopper/ptx/wgmma.cuh"
#include "kernels/hopper/ptx/wgmma_f8.cuh"
#include "kernels/hopper/sm90/ring.cuh"

namespace coda::hopper {

/// Accumulators of one thread: m64 blocks of the warpgroup's tile.
template <TileConfig tile>
struct Accumulators {
    static constexpr int kBlocks = tile.warpgroup_rows() / kPanelRows;
    float value[kBlocks][tile.n / 2];
};

/// Issues the wgmma of one k-tile as one group. `accumulate`: adds to acc, which otherwise is overwritten.
template <int kBlocks, class Program, TileConfig tile, Major kMajorA, Major kMajorB>
__device__ __forceinline__ void issue(const SharedLayout<Program, tile>& shared, int stage, int a_offset,
                                      bool accumulate, Accumulators<tile>& acc) {
    constexpr int kTransposeA = static_cast<int>(kMajorA), kTransposeB = static_cast<int>(kMajorB);
    std::uint64_t a = matrix_descriptor(shared.a(stage) + a_offset, kMajorA);
    std::uint64_t b = matrix_descriptor(shared.b(stage), kMajorB);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) ptx::pin_registers(acc.value[block]);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < tile.k() / tile.instruction_k(); ++step) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
            const std::uint64_t rows =
                a + step * descriptor_k16_step(kMajorA) + block * (kPanelRows * kPanelRowBytes >> 4);
            const std::uint64_t columns = b + step * descriptor_k16_step(kMajorB);
            if constexpr (tile.element_bytes() == 2) {
                ptx::wgmma_m64k16<kTransposeA, kTransposeB>(acc.value[block], rows, columns, accumulate || step > 0);
            } else {
                ptx::wgmma_m64k32<tile.operand_a == DType::f8e5m2, tile.operand_b == DType::f8e5m2>(
                    acc.value[block], rows, columns, accumulate || step > 0);
            }
        }
    }
    ptx::wgmma_commit();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) ptx::pin_registers(acc.value[block]);
}

/// Waits for the next stage, issues its k-tile, the first of a sum if k_tile is 0, and releases the stage before it,
/// `previous`. Keeps one group of wgmma in flight, and returns the stage that this group reads.
template <int kBlocks, class Program, TileConfig tile, Major kMajorA, Major kMajorB, class Release>
__device__ __forceinline__ int issue_next(const SharedLayout<Program, tile>& shared, Ring<tile.stages>& ring,
                                          int a_offset, const Release& release, int k_tile, int previous,
                                          Accumulators<tile>& acc) {
    const int stage = ring.index;
    ptx::mbarrier_wait(shared.full(stage), ring.parity);
    issue<kBlocks, Program, tile, kMajorA, kMajorB>(shared, stage, a_offset, k_tile > 0, acc);
    ptx::wgmma_wait<1>();
    if (k_tile > 0) release(previous);
    ring.advance();
    return stage;
}

/// The K loop of one tile, for its first kBlocks blocks of rows. Releases a stage to the CTAs that load into it: lane l
/// of each warp signals CTA l of the cluster, where `releases`. Calls issued() once the last group has been issued.
template <int kBlocks, class Program, TileConfig tile, Major kMajorA, Major kMajorB, class Issued>
__device__ __forceinline__ void multiply(const SharedLayout<Program, tile>& shared, Ring<tile.stages>& ring,
                                         int k_tiles, int a_offset, bool releases, int lane, Accumulators<tile>& acc,
                                         const Issued& issued) {
    const auto release = [&](int stage) {
        if (releases) ptx::mbarrier_arrive_remote(shared.empty(stage), lane);
    };

    int previous = 0;
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile)
        previous = issue_next<kBlocks, Program, tile, kMajorA, kMajorB>(shared, ring, a_offset, release, k_tile,
                                                                        previous, acc);
    issued();
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) ptx::pin_registers(acc.value[block]);
    release(previous);
}

/// What the tensor cores have begun of the next tile: k-tiles of its first interval, and the stage of the last of them,
/// which is still read.
template <TileConfig tile>
struct Begun {
    Accumulators<tile> partial{};
    int k_tiles = 0;
    int stage = 0;
};

/// multiply for FP8, whose sums in the tensor cores keep about 14 bits: after every tile.promotion elements of K, an
/// interval, they are added to acc, in fp32. NOTE: a consumer has nothing in flight while it adds. The other one then
/// multiplies, as its first interval is half an interval shorter.
///
/// The first interval is longer by tile.ahead() k-tiles. They can be begun while acc still holds the results of the
/// tile before, so that the tensor cores work through its epilogue. A tile of which nothing was begun has the same
/// intervals, and the same bits.
template <class Program, TileConfig tile, class Release>
__device__ __forceinline__ void multiply_promoted(const SharedLayout<Program, tile>& shared, Ring<tile.stages>& ring,
                                                  int k_tiles, int a_offset, const Release& release, int consumer,
                                                  Accumulators<tile>& acc, Begun<tile>& begun) {
    constexpr int kInterval = tile.promotion / tile.k();
    static_assert(kInterval >= 2 && tile.promotion % tile.k() == 0, "an interval has two k-tiles or more");
    static_assert(tile.warpgroup_rows() == kPanelRows && tile.n <= 192,
                  "no registers for a second set of accumulators");
    static_assert(tile.specialization == WarpSpecialization::cooperative, "the other consumer multiplies meanwhile");

    // NOTE: the zeros tell the compiler that nothing reads the values of the tile before. The first wgmma seems to read
    // them; without the zeros their registers stay live through that tile's epilogue, which then spills.
    Accumulators<tile> nothing{};
    Accumulators<tile>& partial = tile.overlaps ? begun.partial : nothing;
#pragma unroll
    for (float& value : acc.value[0]) value = 0;
    int interval = tile.ahead() + (consumer == 0 ? kInterval : kInterval / 2);
    int first = tile.overlaps ? begun.k_tiles : 0;
    for (int left = k_tiles; left > 0; left -= interval, interval = kInterval, first = 0) {
        const int count = left < interval ? left : interval;
        int previous = tile.overlaps ? begun.stage : 0;
        for (int k_tile = first; k_tile < count; ++k_tile)
            previous = issue_next<1, Program, tile, Major::k, Major::k>(shared, ring, a_offset, release, k_tile,
                                                                        previous, partial);
        // Add the tensor cores' sums
        ptx::wgmma_wait<0>();
        release(previous);
        ptx::pin_registers(partial.value[0]);
#pragma unroll
        for (int i = 0; i < tile.n / 2; ++i) acc.value[0][i] += partial.value[0][i];
    }
    begun.k_tiles = 0;
}

/// Accumulators of pair i of a sub-tile. With Slot::kOddRowsSwapped, odd rows take the pair of another block
/// (Slot::kOddRowBlock).
template <class Slot>
__device__ __forceinline__ float2 pair_of(const float* value, int i, bool odd_row) {
    float2 pair = {value[2 * i], value[2 * i + 1]};
    if constexpr (Slot::kOddRowsSwapped) {
        const int other = i ^ 2 * Slot::kOddRowBlock;
        pair = {odd_row ? value[2 * other] : pair.x, odd_row ? value[2 * other + 1] : pair.y};
    }
    return pair;
}

/// Runs the program on all sub-tiles of the warpgroup's tile, and calls between() tile.ahead() times on the way. NOTE:
/// has_second says whether the tile has a second block of rows. It is called when the first block is done, so that its
/// result takes no register until then.
template <class Program, TileConfig tile, class HasSecond, class Between>
__device__ __forceinline__ void finish(Program& program, const SharedLayout<Program, tile>& shared,
                                       Ring<tile.slots>& ring, Rows rows, const HasSecond& has_second,
                                       Accumulators<tile>& acc, const Between& between) {
    using Slot = typename Program::Slot;
    constexpr int kColumns = Slot::kColumns;
    static_assert(tile.n >= 2 * kColumns, "a sub-tile hides the latency of what the next rows load");
    // Ends blocks two at a time: registers are short.
    constexpr bool kTwoBlocks = tile.crowded() || tile.overlaps;
    const int consumer = rows.thread.warpgroup;
#pragma unroll
    for (int block = 0; block < Accumulators<tile>::kBlocks; ++block) {
        float(&value)[tile.n / 2] = acc.value[block];
        if (block > 0) {
            if (!has_second()) break;
            rows.first += kPanelRows;
        }
        program.begin_rows(rows);
        program.measure(rows, value);
#pragma unroll
        for (int sub = 0; sub < tile.n / kColumns; ++sub) {
            const int column = rows.column + sub * kColumns;
            const int lane_column = column + Fragment::column(rows.thread.lane, 0);
            const bool odd_row = rows.thread.lane / 4 % 2 == 1;
            program.begin_slot(rows, column);
            // Wait until the slot's tiles have arrived
            ptx::mbarrier_wait(shared.ready(consumer, ring.index), ring.parity);
            const std::uint32_t slot = shared.slot(consumer, ring.index);
            const auto pair_at = [&](int i) {
                const int block = odd_row ? i / 2 ^ Slot::kOddRowBlock : i / 2;
                return Here{rows.thread, slot, i / 2, i % 2, rows.row(i % 2), lane_column + block * 8};
            };
            // NOTE: each scheduler has only one warp in an epilogue, so no other warp hides the latency of a load. All
            // loads of a group of pairs are therefore issued before the first result is used.
            constexpr int kPairs = kColumns / 4;
            constexpr int kGroup = Program::kFetched != 0 ? Program::kFetched : tile.crowded() ? 4 : kPairs;
#pragma unroll
            for (int group = 0; group < kPairs; group += kGroup) {
#pragma unroll
                for (int i = group; i < group + kGroup; ++i) program.fetch(pair_at(i));
#pragma unroll
                for (int i = group; i < group + kGroup; ++i) {
                    program.visit(pair_of<Slot>(&value[2 * kPairs * sub], i, odd_row), pair_at(i));
                    if (kTwoBlocks && i % 4 == 3) program.template end_blocks<2>(rows, column, i / 4 * 2);
                    if (tile.overlaps && i % 2 == 1) between();
                }
            }
            // NOTE: here, since elsewhere in a block some program would spill.
            if (block + 1 < Accumulators<tile>::kBlocks && sub == 0) {
                Rows next = rows;
                next.first += kPanelRows;
                program.load_rows(next);
            }
            // Hand the slot to the mover
            // NOTE: every writer orders its own stores before TMA's read, then its warp arrives.
            ptx::fence_async_shared();
            __syncwarp();
            if (rows.thread.lane == 0) ptx::mbarrier_arrive(shared.written(consumer, ring.index));
            if (!kTwoBlocks) program.template end_blocks<kColumns / 8>(rows, column, 0);
            program.end_slot(rows, column);
            ring.advance();
        }
        program.end_rows(rows);
    }
}

}  // namespace coda::hopper
