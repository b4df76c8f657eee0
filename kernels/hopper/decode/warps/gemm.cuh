// The GEMM loop of a consumer warp: k-tiles of weights times its slices of the inputs. Device.
#pragma once

#include "kernels/hopper/decode/exchange/lamport_input.cuh"
#include "kernels/hopper/decode/plan/fragment.h"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/mma.cuh"

namespace coda::hopper::decode {

/// Four sums, so that an MMA need not wait for the one before. They are added in order at the end.
struct Sums {
    float of[4][4] = {};

    __device__ float total(int i) const { return of[0][i] + of[1][i] + of[2][i] + of[3][i]; }
};

/// Adds 16 rows times the lanes' columns of inputs; both in shared memory. Lanes whose column does not exist are not
/// `live`: it counts as 0. One warp; the loads of kUnroll blocks are on their way at a time.
template <int kUnroll = 2>
__device__ __forceinline__ void multiply(Sums& sums, const LaneRows& rows, const char* column, bool live, int blocks) {
    const auto load = [](const char* from) { return *reinterpret_cast<const uint4*>(from); };
#pragma unroll kUnroll
    for (int block = 0; block < blocks; ++block) {
        const char *first = rows.first + block * rows.block, *second = rows.second + block * rows.block;
        const char* input = column + block * kBlockRowBytes;
        const uint4 a = load(first), c = load(second), e = load(first + rows.far), g = load(second + rows.far);
        const uint4 b = live ? load(input) : uint4{}, d = live ? load(input + 16) : uint4{};
        ptx::mma_m16n8k16(sums.of[0], a.x, e.x, a.y, e.y, b.x, b.y);
        ptx::mma_m16n8k16(sums.of[1], a.z, e.z, a.w, e.w, b.z, b.w);
        ptx::mma_m16n8k16(sums.of[2], c.x, g.x, c.y, g.y, d.x, d.y);
        ptx::mma_m16n8k16(sums.of[3], c.z, g.z, c.w, g.w, d.z, d.w);
    }
}

/// What a consumer warp counts over the ops.
struct ConsumerCounts {
    RingSlot stage;           // the next of the SM's
    int gemm_tiles = 0;       // of the SM: entries of the ring of partials that were used
    int attention_tiles = 0;  // of the SM
    std::uint32_t consumer_phase = 0;
};

/// The stages that a consumer warp reads of an op's: the warp-th and every eighth from there.
class OwnStages {
  public:
    __device__ __forceinline__ OwnStages(const WarpContext& ctx, const RingSlot& first) : at_(first) {
        at_.advance(ctx.warp, ctx.layout().stages);
    }

    /// Waits for the stage.
    __device__ __forceinline__ char* wait_full(const WarpContext& ctx, const WorkItem& item) const {
        // A warp may be further ahead of the ring than the parity of a barrier can tell.
        const std::uint32_t issued = ptx::shared_address(&ctx.state.issued);
        const std::uint32_t before = at_.count(ctx.layout().stages);
        ctx.watchdog.wait_or_exit(item, Awaited::stage, [=] { return ptx::load_shared_acquire(issued) > before; });
        ctx.watchdog.wait_barrier(item, Awaited::stage, &ctx.state.full[at_.slot], at_.round & 1);
        return ctx.stage(at_);
    }
    /// Hands the stage back to the producer, and goes to the next.
    __device__ __forceinline__ void release(const WarpContext& ctx) {
        __syncwarp();
        if (ctx.lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&ctx.state.empty[at_.slot]));
        at_.advance(kConsumerWarps, ctx.layout().stages);
    }

  private:
    RingSlot at_;
};

/// Hands this warp's partial of a tile's sums, and of the sums of squares, to the epilogue warps. It counts as
/// `arrivals` of the kConsumerWarps that their barrier waits for.
__device__ __forceinline__ void store_partials(const WarpContext& ctx, const Sums& sums, float square, int tile,
                                               int partial, std::uint32_t arrivals, const WorkItem& item) {
    const int entry = ctx.partial_entry(tile), batch = ctx.shape().batch;
    // Tile - partial_entries belongs to the same epilogue warp. Its count is waited for, as the parity of a barrier
    // could not tell rounds apart in which this warp had no tile of this entry.
    if (tile >= ctx.layout().partial_entries) {
        const std::uint32_t read = ptx::shared_address(&ctx.state.partials_read[tile % kEpilogueWarps]);
        const auto needed = static_cast<std::uint32_t>((tile - ctx.layout().partial_entries) / kEpilogueWarps);
        ctx.watchdog.wait_or_exit(item, Awaited::free_partials,
                                  [=] { return ptx::load_shared_acquire(read) > needed; });
    }
    float* to = ctx.partial(entry, partial);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int column = result_column(ctx.lane, i);
        if (column < batch) to[column * kTileRows + result_row(ctx.lane, i)] = sums.total(i);
    }
    if (ctx.lane < batch) to[kTileRows * batch + ctx.lane] = square;
    __syncwarp();
    if (ctx.lane == 0) ptx::mbarrier_arrive_many(ptx::shared_address(&ctx.state.partials_full[entry]), arrivals);
}

/// The lane's column of inputs exists, and counts.
__device__ __forceinline__ bool is_live(const WarpContext& ctx, const DecodeOp& op) {
    return lane_row(ctx.lane) < ctx.shape().batch && has_input(ctx, op, lane_row(ctx.lane));
}

/// The input comes in Lamport buffers; but a token's row of the embedding is fetched from the table.
__device__ __forceinline__ bool comes_by_lamport(const WarpContext& ctx, const DecodeOp& op) {
    return ctx.lamport && !(op.embedded && op.kind == OpKind::qkv);
}

/// A consumer warp's share of a GEMM whose slices it keeps: it fetches them before the first tile.
__device__ __forceinline__ void multiply_kept(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                              const StepTokens& tokens, WorkItem item, const ConsumerCounts& counts) {
    const OwnTiles own = ctx.tiles_of(op);
    const int rounds = slices.rounds(), batch = ctx.shape().batch;
    const int pitch = ctx.lamport ? kInputPitch : input_pitch(rounds);
    const int apart = ctx.lamport ? batch * kInputPitch : 2 * kSliceColumns;  // bytes from a slice to the warp's next
    const bool live = is_live(ctx, op);
    char* input = ctx.input();
    float square = 0;
    // Before the sums, which would take registers from the loads.
    const bool by_lamport = comes_by_lamport(ctx, op);
    OwnKTiles k_tile(slices, ctx.warp);
    const auto arrivals = static_cast<std::uint32_t>(kConsumerWarps / slices.partials());
    OwnStages stage(ctx, counts.stage);
    if (k_tile.tile() < own.number) {
        item.tile = own.tile(k_tile.tile());
        if (by_lamport) {
#pragma unroll 1
            for (int round = 0; round < rounds; ++round)
                fetch_lamport(ctx, op, slices, k_tile.slice() + round * kConsumerWarps, input + round * apart, item,
                              round == 0);
        } else {
            square = SliceFetch(ctx, op, slices, k_tile.slice(), rounds, input, pitch, apart, item).run(tokens);
        }
    }
    __syncwarp();
    Sums sums;
    bool first_tile = true;
    for (; k_tile.tile() < own.number; k_tile.advance()) {
        item.tile = own.tile(k_tile.tile());
        if (k_tile.round() == 0) sums = {};
        ctx.stamp(item, Stamp::ready);
        const char* weights = stage.wait_full(ctx, item);
        const char* slice = input + k_tile.round() * apart;
        multiply(sums, rows_of_stage(weights, ctx.lane), slice + lane_row(ctx.lane) * pitch + 2 * lane_column(ctx.lane),
                 live, slices.blocks_of(k_tile.slice()));
        stage.release(ctx);
        // The squares of Lamport buffers come now, after the stage is free: nobody needs them before the first tile's
        // partials.
        if (by_lamport && first_tile && has_norm(op.kind))
            square += lamport_squares(ctx, slice, slices.columns_of(k_tile.slice(), op.columns));
        if (!k_tile.ends_tile()) continue;
        store_partials(ctx, sums, square, counts.gemm_tiles + k_tile.tile(), k_tile.slice() % kConsumerWarps, arrivals,
                       item);
        first_tile = false;
    }
}

/// The same where its slices do not fit: each is fetched once for kTilesTogether tiles. A tile then has a partial of
/// every warp.
__device__ __forceinline__ void multiply_fetched(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                                 const StepTokens& tokens, WorkItem item,
                                                 const ConsumerCounts& counts) {
    const OwnTiles own = ctx.tiles_of(op);
    const int pitch = ctx.lamport ? kInputPitch : input_pitch(1);
    const bool live = is_live(ctx, op), by_lamport = comes_by_lamport(ctx, op);
    char* input = ctx.input();
    OwnStages stage(ctx, counts.stage);
#pragma unroll 1
    for (int first = 0; first < own.number; first += kTilesTogether) {
        Sums sums[kTilesTogether];
        float square = 0;
#pragma unroll 1
        for (int slice = ctx.warp; slice < slices.number; slice += kConsumerWarps) {
            item.tile = own.tile(first);
            __syncwarp();  // all lanes have used what is there
            if (by_lamport)
                fetch_lamport(ctx, op, slices, slice, input, item, first == 0 && slice == ctx.warp);
            else
                square += SliceFetch(ctx, op, slices, slice, 1, input, pitch, 0, item).run(tokens);
            __syncwarp();
            ctx.stamp(item, Stamp::ready);
#pragma unroll
            for (int t = 0; t < kTilesTogether; ++t) {
                if (first + t >= own.number) continue;
                item.tile = own.tile(first + t);
                const char* weights = stage.wait_full(ctx, item);
                multiply(sums[t], rows_of_stage(weights, ctx.lane),
                         input + lane_row(ctx.lane) * pitch + 2 * lane_column(ctx.lane), live, slices.blocks_of(slice));
                stage.release(ctx);
            }
            if (by_lamport && has_norm(op.kind))
                square += lamport_squares(ctx, input, slices.columns_of(slice, op.columns));
        }
#pragma unroll
        for (int t = 0; t < kTilesTogether; ++t) {
            if (first + t >= own.number) continue;
            item.tile = own.tile(first + t);
            store_partials(ctx, sums[t], square, counts.gemm_tiles + first + t, ctx.warp, 1, item);
        }
    }
}

/// A consumer warp's share of a GEMM.
__device__ __forceinline__ void run_gemm(const WarpContext& ctx, const DecodeOp& op, const StepTokens& tokens,
                                         const WorkItem& item, ConsumerCounts& counts) {
    const Slices slices = slices_of(op.columns);
    if (ctx.lamport && op.kind == OpKind::attn_out && !op.embedded) await_arrivals(ctx, item);
    if (resident_slices(slices, ctx.shape().batch) > 0)
        multiply_kept(ctx, op, slices, tokens, item, counts);
    else
        multiply_fetched(ctx, op, slices, tokens, item, counts);
    const int tiles = ctx.tiles_of(op).number;
    counts.stage.advance_far(tiles * slices.number, ctx.layout().stages);
    counts.gemm_tiles += tiles;
}

}  // namespace coda::hopper::decode
