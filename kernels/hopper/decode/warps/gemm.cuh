// The GEMM loop of a consumer warp: k-tiles of weights times its slices of the inputs. Device.
#pragma once

#include "kernels/hopper/decode/exchange/fixed_point_input.cuh"
#include "kernels/hopper/decode/exchange/lamport_input.cuh"
#include "kernels/hopper/decode/warps/multiply.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"

namespace coda::hopper::decode {

/// What a consumer warp counts over the ops.
struct ConsumerCounts {
    RingSlot stage;           // the next of the SM's
    int gemm_tiles = 0;       // of the SM: entries of the ring of partials that were used
    int attention_tiles = 0;  // of the SM
    std::uint32_t consumer_phase = 0;
};

/// The stages of an op that a consumer warp reads. The warp has the op's k-tiles (or cache blocks) number warp, warp +
/// 8, and so on. 2^shift neighbouring warps share a stage.
class OwnStages {
  public:
    __device__ __forceinline__ OwnStages(const WarpContext& ctx, const RingSlot& first, int shift)
        : at_(first), shift_(shift) {
        at_.advance(ctx.warp >> shift, ctx.layout().stages);
    }

    /// Waits for the stage.
    __device__ __forceinline__ char* wait_full(const WarpContext& ctx, const WorkItem& item) {
        // A warp may be further ahead of the ring than the parity of a barrier can tell.
        const std::uint32_t before = at_.count(ctx.layout().stages);
        if (seen_ <= before) {
            const std::uint32_t issued = ptx::shared_address(&ctx.state.issued);
            ctx.watchdog.wait_or_exit(item, Awaited::stage,
                                      [&] { return (seen_ = ptx::load_shared_acquire(issued)) > before; });
        }
        ctx.watchdog.wait_barrier(item, Awaited::stage, &ctx.state.full[at_.slot], at_.round & 1);
        return ctx.stage(at_);
    }
    /// Hands the stage back to the producer, and goes to the next.
    __device__ __forceinline__ void release(const WarpContext& ctx) {
        __syncwarp();
        if (ctx.lane == 0) {
            const std::uint32_t empty = ptx::shared_address(&ctx.state.empty[at_.slot]);
            if (ctx.int4)
                ptx::mbarrier_arrive_many(empty, static_cast<std::uint32_t>(kStageSlices >> shift_));
            else
                ptx::mbarrier_arrive(empty);
        }
        at_.advance(kConsumerWarps >> shift_, ctx.layout().stages);
    }

  private:
    RingSlot at_;
    int shift_;
    std::uint32_t seen_ = 0;  // of `issued`
};

/// Hands this warp's partial of a tile's sums, and of the sums of squares, to the epilogue warps. It counts as
/// `arrivals` of the kConsumerWarps that their barrier waits for.
__device__ __forceinline__ void store_partials(const WarpContext& ctx, const Sums& sums, float square, int tile,
                                               int partial, std::uint32_t arrivals, const WorkItem& item,
                                               bool of_pieces) {
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
        const int column = of_pieces ? integer_result_sequence(ctx.lane, i) : result_column(ctx.lane, i);
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

/// The sequences that count, a bit for each; of 4-bit integers.
__device__ __forceinline__ std::uint32_t piece_sequences(const WarpContext& ctx, const DecodeOp& op) {
    if (!ctx.is_int4(op)) return 0;
    return __ballot_sync(kAllLanes, ctx.lane < ctx.shape().batch && has_input(ctx, op, ctx.lane));
}

/// The lane's place in a slice of the inputs.
__device__ __forceinline__ int input_offset(const WarpContext& ctx, int pitch) {
    return lane_row(ctx.lane) * pitch + 2 * lane_column(ctx.lane);
}

/// A consumer warp's k-tiles of a GEMM in their stages.
class WeightStages {
  public:
    __device__ __forceinline__ WeightStages(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                            const RingSlot& first)
        : int4_(ctx.is_int4(op)),
          from_((ctx.warp & (stage_slices(slices, int4_) - 1)) * (slices.most / kUnitBlocks * kUnitBytes)),
          stage_(ctx, first, stage_shift(slices, int4_)),
          pieces_(piece_sequences(ctx, op)) {}

    __device__ __forceinline__ bool int4() const { return int4_; }

    /// Waits for the next k-tile, adds its products with a slice of the inputs, and hands it back. column, live: the
    /// lane's in bf16.
    __device__ __forceinline__ void multiply_next(const WarpContext& ctx, Sums& sums, const char* slice,
                                                  const char* column, bool live, int blocks, const WorkItem& item) {
        const char* weights = stage_.wait_full(ctx, item);
        const PieceSlice pieces{slice, ctx.shape().batch, pieces_};
        const int units = blocks / kUnitBlocks;
        if (int4_ && (!ctx.lamport || pieces.batch <= kPieceSequences))
            multiply_units<1>(sums, weights + from_, ctx.lane, pieces, units);
        else if (int4_)
            multiply_units<2>(sums, weights + from_, ctx.lane, pieces, units);
        else
            multiply(sums, rows_of_stage(weights, ctx.lane), column, live, blocks);
        stage_.release(ctx);
    }

  private:
    bool int4_;
    int from_;  // bytes from the start of a stage
    OwnStages stage_;
    std::uint32_t pieces_;
};

/// A consumer warp's share of a GEMM whose slices it keeps: it fetches them before the first tile.
__device__ __forceinline__ void multiply_kept(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                              const StepTokens& tokens, WorkItem item, const ConsumerCounts& counts) {
    const OwnTiles own = ctx.tiles_of(op);
    const int rounds = slices.rounds(), batch = ctx.shape().batch;
    const bool slices_apart = ctx.lamport || ctx.int4;
    const int pitch = slices_apart ? kInputPitch : input_pitch(rounds);
    const int apart = slices_apart ? batch * kInputPitch : 2 * kSliceColumns;  // bytes from a slice to the warp's next
    const bool live = is_live(ctx, op);
    char* input = ctx.input();
    float square = 0;
    // Before the sums, which would take registers from the loads.
    const bool by_lamport = comes_by_lamport(ctx, op);
    OwnKTiles k_tile(slices, ctx.warp);
    const auto arrivals = static_cast<std::uint32_t>(kConsumerWarps / slices.partials());
    WeightStages weights(ctx, op, slices, counts.stage);
    const bool converts = weights.int4();
    if (k_tile.tile() < own.number) {
        item.tile = own.tile(k_tile.tile());
        if (converts) FixedPointInput(ctx, op, slices, k_tile.slice()).prefetch(ctx.lane);
        if (by_lamport) {
#pragma unroll 1
            for (int round = 0; round < rounds; ++round)
                fetch_lamport(ctx, op, slices, k_tile.slice() + round * kConsumerWarps, input + round * apart, item,
                              round == 0);
        } else {
            square = SliceFetch(ctx, op, slices, k_tile.slice(), rounds, input, pitch, apart, item).run(tokens);
        }
        if (converts) {
#pragma unroll 1
            for (int round = 0; round < rounds; ++round)
                square += FixedPointInput(ctx, op, slices, k_tile.slice() + round * kConsumerWarps)
                              .convert(ctx, input + round * apart);
        }
    }
    __syncwarp();
    Sums sums;
    bool first_tile = true;
    for (; k_tile.tile() < own.number; k_tile.advance()) {
        item.tile = own.tile(k_tile.tile());
        if (k_tile.round() == 0) sums = {};
        ctx.stamp(item, Stamp::ready);
        const char* slice = input + k_tile.round() * apart;
        weights.multiply_next(ctx, sums, slice, slice + input_offset(ctx, pitch), live,
                              slices.blocks_of(k_tile.slice()), item);
        // The squares of Lamport buffers come now, after the stage is free: nobody needs them before the first tile's
        // partials.
        if (by_lamport && first_tile && has_norm(op.kind) && !converts)
            square += lamport_squares(ctx, slice, slices.columns_of(k_tile.slice(), op.columns));
        if (!k_tile.ends_tile()) continue;
        store_partials(ctx, sums, square, counts.gemm_tiles + k_tile.tile(), k_tile.slice() % kConsumerWarps, arrivals,
                       item, weights.int4());
        first_tile = false;
    }
}

/// The same where its slices do not fit: each is fetched once for kTilesTogether tiles. A tile then has a partial of
/// every warp.
__device__ __forceinline__ void multiply_fetched(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                                 const StepTokens& tokens, WorkItem item,
                                                 const ConsumerCounts& counts) {
    const OwnTiles own = ctx.tiles_of(op);
    const int pitch = ctx.lamport || ctx.int4 ? kInputPitch : input_pitch(1);
    const bool live = is_live(ctx, op), by_lamport = comes_by_lamport(ctx, op);
    char* input = ctx.input();
    WeightStages weights(ctx, op, slices, counts.stage);
    const bool converts = weights.int4();
#pragma unroll 1
    for (int first = 0; first < own.number; first += kTilesTogether) {
        Sums sums[kTilesTogether];
        float square = 0;
#pragma unroll 1
        for (int slice = ctx.warp; slice < slices.number; slice += kConsumerWarps) {
            item.tile = own.tile(first);
            if (converts) FixedPointInput(ctx, op, slices, slice).prefetch(ctx.lane);
            __syncwarp();  // all lanes have used what is there
            if (by_lamport)
                fetch_lamport(ctx, op, slices, slice, input, item, first == 0 && slice == ctx.warp);
            else
                square += SliceFetch(ctx, op, slices, slice, 1, input, pitch, 0, item).run(tokens);
            __syncwarp();
            if (converts) square += FixedPointInput(ctx, op, slices, slice).convert(ctx, input);
            ctx.stamp(item, Stamp::ready);
#pragma unroll
            for (int t = 0; t < kTilesTogether; ++t) {
                if (first + t >= own.number) continue;
                item.tile = own.tile(first + t);
                weights.multiply_next(ctx, sums[t], input, input + input_offset(ctx, pitch), live,
                                      slices.blocks_of(slice), item);
            }
            if (by_lamport && has_norm(op.kind) && !converts)
                square += lamport_squares(ctx, input, slices.columns_of(slice, op.columns));
        }
#pragma unroll
        for (int t = 0; t < kTilesTogether; ++t) {
            if (first + t >= own.number) continue;
            item.tile = own.tile(first + t);
            store_partials(ctx, sums[t], square, counts.gemm_tiles + first + t, ctx.warp, 1, item, weights.int4());
        }
    }
}

/// A consumer warp's share of a GEMM.
__device__ __forceinline__ void run_gemm(const WarpContext& ctx, const DecodeOp& op, const StepTokens& tokens,
                                         const WorkItem& item, ConsumerCounts& counts) {
    const Slices slices = ctx.slices(op.columns);
    if (ctx.lamport && op.kind == OpKind::attn_out && !op.embedded) await_arrivals(ctx, item);
    if (resident_slices(slices, ctx.shape().batch) > 0)
        multiply_kept(ctx, op, slices, tokens, item, counts);
    else
        multiply_fetched(ctx, op, slices, tokens, item, counts);
    const int tiles = ctx.tiles_of(op).number;
    counts.stage.advance_far(tiles * (slices.number >> stage_shift(slices, ctx.is_int4(op))), ctx.layout().stages);
    counts.gemm_tiles += tiles;
}

}  // namespace coda::hopper::decode
