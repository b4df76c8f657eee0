// The GEMM loop of a consumer warp: k-tiles of weights times its slices of the inputs. Device.
#pragma once

#include "kernels/hopper/decode/exchange/fixed_point_input.cuh"
#include "kernels/hopper/decode/exchange/lamport_input.cuh"
#include "kernels/hopper/decode/warps/multiply.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"

namespace coda::hopper::decode {

/// What a consumer warp counts over the ops.
struct ConsumerCounts {
    RingSlot stage;      // the next of the SM's
    int gemm_tiles = 0;  // of the SM: entries of the ring of partials that were used
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
            const std::uint32_t issued = ptx::shared_address(&ctx.state().issued);
            ctx.watchdog.wait_or_exit(item, Awaited::stage,
                                      [&] { return (seen_ = ptx::load_shared_acquire(issued)) > before; });
        }
        ctx.watchdog.wait_barrier(item, Awaited::stage, &ctx.state().full[at_.slot], at_.round & 1);
        return ctx.stage(at_);
    }
    /// Hands the stage back to the producer, and goes to the next.
    __device__ __forceinline__ void release(const WarpContext& ctx) {
        __syncwarp();
        if (ctx.lane == 0) {
            const std::uint32_t empty = ptx::shared_address(&ctx.state().empty[at_.slot]);
            ptx::mbarrier_arrive_many(empty, static_cast<std::uint32_t>(most_stage_slices(ctx.int4) >> shift_));
        }
        at_.advance(kConsumerWarps >> shift_, ctx.layout().stages);
    }

  private:
    RingSlot at_;
    int shift_;
    std::uint32_t seen_ = 0;  // of `issued`
};

/// Waits until the epilogue warps have read the partials of the warp's last tile of attention, over which its next
/// input lies. In bf16 at the end of the tile, as a warp that polls for the next input takes from the stream; with
/// 4-bit integers, which have the stream to spare, when the next input is about to be fetched.
__device__ __forceinline__ void await_attention_read(const WarpContext& ctx, const WorkItem& item) {
    const std::uint32_t tiles = ctx.state().attention_tiles[ctx.warp];
    ctx.watchdog.wait_barrier(item, Awaited::free_partials, &ctx.state().attention_empty, (tiles & 1) ^ 1);
}

/// Hands this warp's partial of a tile's sums, and of the sums of squares, to the epilogue warps. It counts as
/// `arrivals` of the kConsumerWarps that their barrier waits for.
template <int kOctets>
__device__ __forceinline__ void store_partials(const WarpContext& ctx, const Sums (&sums)[kOctets], float square,
                                               int tile, int partial, std::uint32_t arrivals, const WorkItem& item,
                                               bool of_pieces) {
    const int entry = ctx.partial_entry(tile), batch = ctx.shape().batch;
    // The entry's last tile must have been read, by the epilogue warp that takes this tile too, or by both. This warp
    // waits for their counts, as the parity of a barrier could not tell rounds apart in which it had no tile of this
    // entry.
    if (tile >= ctx.layout().partial_entries) {
        const bool both = ctx.splits_tiles();
        const std::uint32_t read = ptx::shared_address(&ctx.state().partials_read[both ? 0 : tile % kEpilogueWarps]);
        const auto needed = static_cast<std::uint32_t>(tile - ctx.layout().partial_entries);
        ctx.watchdog.wait_or_exit(item, Awaited::free_partials, [=] {
            constexpr std::uint32_t kApart = sizeof(SharedState::partials_read) / kEpilogueWarps;
            return ptx::load_shared_acquire(read) > needed &&
                   (!both || ptx::load_shared_acquire(read + kApart) > needed);
        });
    }
    float* to = ctx.partial(entry, partial);
#pragma unroll
    for (int o = 0; o < kOctets; ++o)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int in_octet = of_pieces ? integer_result_sequence(ctx.lane, i) : result_column(ctx.lane, i);
            const int column = o * kOctet + in_octet;
            if (column < batch) to[column * kTileRows + result_row(ctx.lane, i)] = sums[o].total(i);
        }
    if (ctx.lane < batch) to[kTileRows * batch + ctx.lane] = square;
    __syncwarp();
    if (ctx.lane == 0) ptx::mbarrier_arrive_many(ptx::shared_address(&ctx.state().partials_full[entry]), arrivals);
}

/// The lane's columns of inputs in a slice, sequences `pitch` bytes apart; `first` is to be set.
template <int kOctets>
__device__ __forceinline__ LaneColumns<kOctets> columns_of_lane(const WarpContext& ctx, const DecodeOp& op, int pitch) {
    LaneColumns<kOctets> columns{.first = nullptr, .apart = kOctet * pitch, .live = {}};
#pragma unroll
    for (int o = 0; o < kOctets; ++o) {
        const int sequence = o * kOctet + lane_row(ctx.lane);
        columns.live[o] = sequence < ctx.shape().batch && has_input(ctx, op, sequence);
    }
    return columns;
}

/// The input comes in Lamport buffers; but a token's row of the embedding is fetched from the table.
__device__ __forceinline__ bool comes_by_lamport(const WarpContext& ctx, const DecodeOp& op) {
    return ctx.lamport && !(op.embedded && op.kind == OpKind::qkv);
}

/// The sequences that count, a bit for each.
__device__ __forceinline__ std::uint32_t piece_sequences(const WarpContext& ctx, const DecodeOp& op) {
    return __ballot_sync(kAllLanes, ctx.lane < ctx.shape().batch && has_input(ctx, op, ctx.lane));
}

/// For a matrix of 4-bit integers: the warp's share in the conversion of `rounds` slices, which the SM's tiles from
/// `tile` on need. The pair's other SM has the rest of it if it has such tiles too; it may then store its results here.
template <int kOctets>
__device__ __forceinline__ InputShare lend_input(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                                 bool by_lamport, int tile, int rounds) {
    const InputShare share(
        ctx, kOctets == kMaxOctets && ctx.pairs() && by_lamport && ctx.partner_tiles_of(op).number > tile);
    const int of_squares = has_norm(op.kind) ? static_cast<int>(sizeof(float)) : 0;
    share.lend(ctx, rounds * FixedPointInput::bytes(slices) + of_squares);
    return share;
}

/// Makes `rounds` slices of the input fixed point, `apart` bytes from one to the next. Lane b returns the sum of the
/// squares of sequence b, for an op with a norm.
__device__ __forceinline__ float convert_input(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                               int slice, int rounds, int apart, const InputShare& share, char* input,
                                               const WorkItem& item) {
    float square = 0;
    share.await_loan(ctx, item);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        const FixedPointInput fixed(ctx, op, slices, slice + round * kConsumerWarps);
        char* of_round = input + round * apart;
        square += ctx.lamport ? fixed.convert<2>(ctx, share, of_round) : fixed.convert<1>(ctx, share, of_round);
    }
    return share.receive(ctx, square, has_norm(op.kind), item);
}

/// The lane's place in a slice of the inputs.
__device__ __forceinline__ int input_offset(const WarpContext& ctx, int pitch) {
    return lane_row(ctx.lane) * pitch + 2 * lane_column(ctx.lane);
}

/// A consumer warp's k-tiles of a GEMM in their stages.
template <bool kInt4>
class WeightStages {
  public:
    __device__ __forceinline__ WeightStages(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                            const RingSlot& first)
        : from_((ctx.warp & (stage_slices(slices, kInt4) - 1)) *
                (kInt4 ? slices.most / kUnitBlocks * kUnitBytes : slices.most * kBlockBytes)),
          stage_(ctx, first, stage_shift(slices, kInt4)),
          pieces_(kInt4 ? piece_sequences(ctx, op) : 0) {}

    /// Waits for the next k-tile, adds its products with a slice of the inputs, and hands it back. columns: the lane's,
    /// in bf16.
    template <int kOctets>
    __device__ __forceinline__ void multiply_next(const WarpContext& ctx, Sums (&sums)[kOctets], const char* slice,
                                                  const LaneColumns<kOctets>& columns, int blocks,
                                                  const WorkItem& item) {
        const char* weights = stage_.wait_full(ctx, item);
        if constexpr (kInt4) {
            const PieceSlice pieces{slice, ctx.shape().batch, pieces_};
            const int units = blocks / kUnitBlocks;
            if (kOctets == 1 && (!ctx.lamport || pieces.batch <= kPieceSequences))
                multiply_units<1>(sums, weights + from_, ctx.lane, pieces, units);
            else
                multiply_units<2 * kOctets>(sums, weights + from_, ctx.lane, pieces, units);
        } else {
            multiply(sums, rows_of_stage(weights + from_, ctx.lane), columns, blocks);
        }
        stage_.release(ctx);
    }

  private:
    int from_;  // bytes from the start of a stage
    OwnStages stage_;
    std::uint32_t pieces_;
};

/// A consumer warp's share of a GEMM whose slices it keeps: it fetches them before the first tile.
template <int kOctets, bool kInt4>
__device__ __forceinline__ void multiply_kept(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                              const StepTokens& tokens, WorkItem item, const ConsumerCounts& counts) {
    const OwnTiles own = ctx.tiles_of(op);
    const int rounds = slices.rounds(), batch = ctx.shape().batch;
    const bool slices_apart = ctx.lamport || ctx.int4;
    const int pitch = slices_apart ? kInputPitch : input_pitch(rounds);
    const int apart = slices_apart ? batch * kInputPitch : 2 * kSliceColumns;  // bytes from a slice to the warp's next
    LaneColumns<kOctets> columns = columns_of_lane<kOctets>(ctx, op, pitch);
    char* input = ctx.input();
    float square = 0;
    // Before the sums, which would take registers from the loads.
    const bool by_lamport = comes_by_lamport(ctx, op);
    OwnKTiles k_tile(slices, ctx.warp);
    const auto arrivals = static_cast<std::uint32_t>(kConsumerWarps / slices.partials());
    WeightStages<kInt4> weights(ctx, op, slices, counts.stage);
    if (ctx.int4 && op.kind == OpKind::attn_out) await_attention_read(ctx, item);
    if (k_tile.tile() < own.number) {
        item.tile = own.tile(k_tile.tile());
        if (kInt4) FixedPointInput(ctx, op, slices, k_tile.slice()).prefetch(ctx.lane);
        const InputShare share =
            kInt4 ? lend_input<kOctets>(ctx, op, slices, by_lamport, k_tile.tile(), rounds) : InputShare(ctx, false);
        if (by_lamport) {
#pragma unroll 1
            for (int round = 0; round < rounds; ++round)
                fetch_lamport<kLamportVectors>(ctx, op, slices, k_tile.slice() + round * kConsumerWarps, share.own(),
                                               input + round * apart, item, round == 0);
        } else {
            square = SliceFetch<!kInt4>(ctx, op, slices, k_tile.slice(), rounds, input, pitch, apart, item).run(tokens);
        }
        if (kInt4) square = convert_input(ctx, op, slices, k_tile.slice(), rounds, apart, share, input, item);
    }
    __syncwarp();
    Sums sums[kOctets];
    bool first_tile = true;
    for (; k_tile.tile() < own.number; k_tile.advance()) {
        item.tile = own.tile(k_tile.tile());
        if (k_tile.round() == 0)
#pragma unroll
            for (Sums& of_octet : sums) of_octet = {};
        ctx.stamp(item, Stamp::ready);
        const char* slice = input + k_tile.round() * apart;
        columns.first = slice + input_offset(ctx, pitch);
        weights.multiply_next(ctx, sums, slice, columns, slices.blocks_of(k_tile.slice()), item);
        // The squares of Lamport buffers come now, after the stage is free: nobody needs them before the first tile's
        // partials.
        if (by_lamport && first_tile && has_norm(op.kind) && !kInt4)
            square += lamport_squares(ctx, slice, slices.columns_of(k_tile.slice(), op.columns));
        if (!k_tile.ends_tile()) continue;
        store_partials(ctx, sums, square, counts.gemm_tiles + k_tile.tile(), k_tile.slice() % kConsumerWarps, arrivals,
                       item, kInt4);
        first_tile = false;
    }
}

/// The same where its slices do not fit: each is fetched once for kTilesTogether tiles. A tile then has a partial of
/// every warp.
template <int kOctets, bool kInt4>
__device__ __forceinline__ void multiply_fetched(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                                 const StepTokens& tokens, WorkItem item,
                                                 const ConsumerCounts& counts) {
    const OwnTiles own = ctx.tiles_of(op);
    const int pitch = ctx.lamport || ctx.int4 ? kInputPitch : input_pitch(1);
    LaneColumns<kOctets> columns = columns_of_lane<kOctets>(ctx, op, pitch);
    const bool by_lamport = comes_by_lamport(ctx, op);
    char* input = ctx.input();
    columns.first = input + input_offset(ctx, pitch);
    WeightStages<kInt4> weights(ctx, op, slices, counts.stage);
    if (ctx.int4 && op.kind == OpKind::attn_out) await_attention_read(ctx, item);
#pragma unroll 1
    for (int first = 0; first < own.number; first += kTilesTogether) {
        Sums sums[kTilesTogether][kOctets];
        float square = 0;
#pragma unroll 1
        for (int slice = ctx.warp; slice < slices.number; slice += kConsumerWarps) {
            item.tile = own.tile(first);
            if (kInt4) FixedPointInput(ctx, op, slices, slice).prefetch(ctx.lane);
            __syncwarp();  // all lanes have used what is there
            const InputShare share =
                kInt4 ? lend_input<kOctets>(ctx, op, slices, by_lamport, first, 1) : InputShare(ctx, false);
            if (by_lamport)
                // Fewer loads at a time for two octets in bf16, whose sums need the registers.
                fetch_lamport<kInt4 ? kLamportVectors : kLamportVectors / kOctets>(
                    ctx, op, slices, slice, share.own(), input, item, first == 0 && slice == ctx.warp);
            else
                square += SliceFetch<!kInt4>(ctx, op, slices, slice, 1, input, pitch, 0, item).run(tokens);
            __syncwarp();
            if (kInt4) square += convert_input(ctx, op, slices, slice, 1, 0, share, input, item);
            ctx.stamp(item, Stamp::ready);
#pragma unroll
            for (int t = 0; t < kTilesTogether; ++t) {
                if (first + t >= own.number) continue;
                item.tile = own.tile(first + t);
                weights.multiply_next(ctx, sums[t], input, columns, slices.blocks_of(slice), item);
            }
            if (by_lamport && has_norm(op.kind) && !kInt4)
                square += lamport_squares(ctx, input, slices.columns_of(slice, op.columns));
        }
#pragma unroll
        for (int t = 0; t < kTilesTogether; ++t) {
            if (first + t >= own.number) continue;
            item.tile = own.tile(first + t);
            store_partials(ctx, sums[t], square, counts.gemm_tiles + first + t, ctx.warp, 1, item, kInt4);
        }
    }
}

template <int kOctets, bool kInt4>
__device__ __forceinline__ void multiply_op(const WarpContext& ctx, const DecodeOp& op, const Slices& slices,
                                            const StepTokens& tokens, const WorkItem& item,
                                            const ConsumerCounts& counts) {
    if (resident_slices(slices, ctx.shape().batch) > 0)
        multiply_kept<kOctets, kInt4>(ctx, op, slices, tokens, item, counts);
    else
        multiply_fetched<kOctets, kInt4>(ctx, op, slices, tokens, item, counts);
}

/// A consumer warp's share of a GEMM.
template <int kOctets>
__device__ __forceinline__ void run_gemm(const WarpContext& ctx, const DecodeOp& op, const StepTokens& tokens,
                                         const WorkItem& item, ConsumerCounts& counts) {
    const Slices slices = ctx.slices(op.columns);
    if (ctx.is_int4(op))
        multiply_op<kOctets, true>(ctx, op, slices, tokens, item, counts);
    else
        multiply_op<kOctets, false>(ctx, op, slices, tokens, item, counts);
    const int tiles = ctx.tiles_of(op).number;
    counts.stage.advance_far(tiles * (slices.number >> stage_shift(slices, ctx.is_int4(op))), ctx.layout().stages);
    counts.gemm_tiles += tiles;
}

}  // namespace coda::hopper::decode
