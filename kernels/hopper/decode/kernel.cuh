// fused_decode - a model's whole decode step, many steps per launch
//
//   GEMM       z = x Wᵀ, x (S, K) in bf16, W (N, K) in bf16 or 4-bit integers, S <= 16 sequences -> fp32;
//              results = epilogue(z)
//   attention  o = softmax(q Kᵀ / sqrt(hd)) V over the cache, in splits of a sequence's positions
//   choose     the next token of each sequence from its logits
//
// Every warp walks the same list of ops (plan/decode_plan.h) and computes from the same functions (plan/work.h) which
// tiles are its own.
//
// Roles      one CTA per SM, 11 warps: warps 0-7 are consumers (mma.sync, attention, choose), warps 8-9 reduce the
//            consumers' partials and apply the epilogue, one thread of warp 10 is the producer
// Pipelines  stages     producer -> consumer   full: 1 arrive + bytes   empty: most_stage_slices() arrives, of which
//                       each warp that reads the stage makes its share
//                       issued: a count, as a consumer may be further ahead of the ring than a parity can tell
//            partials   consumers -> epilogue  full: 8 arrives          partials_read: a count per epilogue warp
//            attention  consumers -> epilogue  full: 8 arrives          empty: 1 arrive per epilogue warp
//            consumers  8 arrives: the consumers of an SM that draws a token
//            pair       consumer -> the same warp of the pair's other SM   lent: 1 arrive   delivered: 1 arrive + bytes
//            committed  consumer 0 -> producer: a count of the steps whose tokens are known
// Exchange   between SMs, through L2: LL words or Lamport buffers, and per layer an arrival (plan/decode_plan.h);
//            in a pair of SMs, a cluster of two CTAs: fixed-point inputs of 4-bit integers (exchange/input_share.cuh)
// Timeline   load     per stage: wait empty, and at the limit in flight for the oldest load; copy
//            consume  GEMM: fetch slices of x, for 4-bit integers as fixed point; per k-tile: wait full, MMAs, release;
//                     per tile: store partials
//                     attention: fetch the queries; per block: wait full, running maximum, release; store partials
//                     choose: on SM b, reduce the largest logits of sequence b, or draw; commit its token
//            finish   per tile: fetch what the epilogue reads, wait full, reduce in order, epilogue, hand over
//            step     every warp waits for the tokens of the step before, unless no sequence runs any more
// Shared     ring of stages | inputs of each consumer, over them attention's partials | partials | ops | SharedState
//            (Layout)
//
// There is no barrier over the grid. All warps wait for data, with one exception: with Lamport buffers they also wait
// once per layer until all SMs are done with the layer before. Every wait has a limit (exchange/watchdog.cuh).
//
// Sums are added in one order: MMAs by four, slices, warps, splits. A sequence is a column of the MMAs. So it has the
// same bits by itself and next to others, on any number of SMs, and for any number of steps per launch. Members of the
// batch may also be tokens of one sequence, which share its cache (DecodePlan::shares_caches()).
#pragma once

#include "kernels/hopper/decode/warps/attention.cuh"
#include "kernels/hopper/decode/warps/attention_epilogue.cuh"
#include "kernels/hopper/decode/warps/choose.cuh"
#include "kernels/hopper/decode/warps/gemm_epilogue.cuh"
#include "kernels/hopper/decode/warps/producer.cuh"
#include "kernels/hopper/ptx/cluster.cuh"

namespace coda::hopper::decode {

/// The context for one op. What follows from the lane's number is computed within the op, so that no register keeps it
/// over all ops.
__device__ __forceinline__ WarpContext in_op(WarpContext ctx) {
    ptx::hide_origin(ctx.lane);
    return ctx;
}

template <int kHeadDim, int kOctets, bool kSharesCaches>
__device__ __forceinline__ void run_consumer(const WarpContext& all) {
    ConsumerCounts counts;
    StepTokens tokens;
    for (int step = 0; step < all.arguments.steps; ++step) {
        if (!begin_step(all, step, tokens)) return all.watchdog.exit_all();
        if (all.warp == 0 && all.lane == 0)
            ptx::store_shared_release(ptx::shared_address(&all.state().committed), static_cast<std::uint32_t>(step));
        for (int s = 0; s < all.arguments.op_count; ++s) {
            const WarpContext ctx = in_op(all);
            const DecodeOp& op = ctx.op(s);
            const WorkItem item = ctx.item(step, s);
            ctx.stamp(item, Stamp::begin);
            if (op.kind == OpKind::attention)
                counts = run_attention<kHeadDim, kSharesCaches>(ctx, op, tokens, item, counts);
            else if (op.kind != OpKind::choose)
                run_gemm<kOctets>(ctx, op, tokens, item, counts);
            else if (ctx.sm < ctx.shape().batch)
                run_choice(ctx.state().arguments, ctx.shared, tokens, item);
        }
    }
}

template <int kHeadDim, int kOctets>
__device__ void run_epilogue(const WarpContext& all) {
    int gemm_tiles = 0;
    StepTokens tokens;
    for (int step = 0; step < all.arguments.steps; ++step) {
        if (!begin_step(all, step, tokens)) return all.watchdog.exit_all();
        for (int s = 0; s < all.arguments.op_count; ++s) {
            WarpContext ctx = in_op(all);
            ptx::hide_origin(ctx.sm);  // likewise
            ptx::hide_origin(step);
            const DecodeOp& op = ctx.op(s);
            const WorkItem item = ctx.item(step, s);
            const int warp = ctx.warp - kConsumerWarps;
            ctx.stamp(item, Stamp::begin);
            if (op.kind == OpKind::attention) {
                run_attention_epilogue<kHeadDim>(ctx, op, warp, step, item);
            } else if (op.kind != OpKind::choose) {
                GemmEpilogue<kHeadDim, kOctets>(ctx, op, tokens, item).run(warp, gemm_tiles);
                gemm_tiles += ctx.tiles_of(op).number;
            }
        }
    }
}

/// Sets up the barriers, the list of ops, and the sequences as the launch finds them. All threads.
__device__ __forceinline__ void initialise(const WarpContext& ctx) {
    SharedState& state = ctx.state();
    if (threadIdx.x == 0) {
        const auto init = [](std::uint64_t& barrier, std::uint32_t arrivals) {
            ptx::mbarrier_init(ptx::shared_address(&barrier), arrivals);
        };
        for (int i = 0; i < kMaxStages; ++i) {
            init(state.full[i], 1);
            init(state.empty[i], most_stage_slices(ctx.int4));
        }
        for (std::uint64_t& barrier : state.partials_full) init(barrier, kConsumerWarps);
        init(state.attention_full, kConsumerWarps);
        init(state.attention_empty, kEpilogueWarps);
        init(state.consumers, kConsumerWarps);
        for (std::uint64_t& barrier : state.lent) init(barrier, 1);
        for (std::uint64_t& barrier : state.delivered) init(barrier, 1);
        ptx::fence_mbarrier_init();
        state.issued = 0;
        state.committed = 0;
        for (std::uint32_t& tiles : state.partials_read) tiles = 0;
        for (std::uint32_t& tiles : state.attention_tiles) tiles = 0;
        for (std::uint32_t& exchanges : state.exchanges) exchanges = 0;
        for (std::uint32_t& meetings : state.meetings) meetings = 0;
        state.exiting = 0;
        state.arguments = ctx.arguments;
    }
    const int batch = ctx.shape().batch, thread = static_cast<int>(threadIdx.x);
    if (thread < batch) {
        const std::int32_t* start = ctx.arguments.start;
        const bool runs = start[2 * batch + thread] == static_cast<std::int32_t>(RowState::running);
        state.start_token[thread] = start[thread];
        state.start_length[thread] = start[batch + thread];
        state.start_running[thread] = runs && start[batch + thread] > 0;
    }
    const auto* from = reinterpret_cast<const std::uint64_t*>(ctx.arguments.ops);
    auto* to = reinterpret_cast<std::uint64_t*>(ctx.shared + ctx.layout().ops);
    const int words = ctx.arguments.op_count * static_cast<int>(sizeof(DecodeOp) / sizeof *to);
    for (int i = thread; i < words; i += kThreads) to[i] = from[i];
    for (int s = thread; s < ctx.arguments.op_count; s += kThreads)
        if (ctx.has_map(ctx.arguments.ops[s])) ptx::acquire_map(ctx.map(s));
    __syncthreads();
    if (ctx.pairs()) ptx::cluster_sync();
}

/// Kernels apart, so that few sequences do not pay for what many need, nor bf16 for integers, nor LLaMA for other
/// families and guesses. kOctets: 0 where inputs come as words. kSharesCaches: DecodePlan::shares_caches().
template <int kHeadDim, int kOctets, bool kInt4, bool kExtended, bool kSharesCaches = false>
__global__ __launch_bounds__(kThreads, 1) void fused_decode(const __grid_constant__ Arguments arguments) {
    extern __shared__ __align__(1024) char memory[];
    constexpr int kColumns = kOctets == 0 ? 1 : kOctets;
    const WarpContext ctx(
        arguments, memory,
        Instance{
            .lamport = kOctets > 0, .int4 = kInt4, .extended = kExtended, .shares = kSharesCaches, .octets = kColumns});
    initialise(ctx);
    if (ctx.warp < kConsumerWarps)
        run_consumer<kHeadDim, kColumns, kSharesCaches>(ctx);
    else if (ctx.warp < kConsumerWarps + kEpilogueWarps)
        run_epilogue<kHeadDim, kColumns>(ctx);
    else if (ctx.lane == 0)
        Producer<kHeadDim>(ctx).run();
    // The partner may still store here. The idle lanes of the last warp wait from the start, so that the SM's memory
    // stays even if the watchdog ends all others.
    if (ctx.pairs()) ptx::cluster_sync_each();
}

template <int kOctets, bool kInt4>
auto instance_for(int head_dim, bool extended) {
    if (extended)
        return head_dim == 64 ? fused_decode<64, kOctets, kInt4, true> : fused_decode<128, kOctets, kInt4, true>;
    return head_dim == 64 ? fused_decode<64, kOctets, kInt4, false> : fused_decode<128, kOctets, kInt4, false>;
}
/// For DecodePlan::shares_caches(), with three to eight members of the batch. They take any family.
template <bool kInt4>
auto shared_instance_for(int head_dim) {
    return head_dim == 64 ? fused_decode<64, 1, kInt4, true, true> : fused_decode<128, 1, kInt4, true, true>;
}

}  // namespace coda::hopper::decode
