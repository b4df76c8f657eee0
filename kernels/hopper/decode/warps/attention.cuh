// Attention in a consumer warp: it takes every eighth block of a split, with a running maximum per query head. The
// epilogue warps reduce the partials of the eight warps. Device.
//
//   logits  keys (16 positions at a time) times the queries of the group's heads, by MMA: heads are columns
//   sums    Σ e v in fp32 on CUDA cores: a lane has two or four columns of every head
//
// The keys and values of old positions are loaded before the queries arrive. The warp then overwrites the rows of the
// last two positions in a block: n - 1, the newest, with the words of qkv, which come with the queries; and n - 2,
// which the step before stored and the copy may have missed (producer.cuh). Where members of the batch are of one
// sequence, it overwrites the rows of those before the tile's own instead, with their words (earlier_rows.cuh).
//
// A warp's partials lie over its input.
#pragma once

#include "kernels/hopper/decode/plan/attention_input.h"
#include "kernels/hopper/decode/warps/earlier_rows.cuh"
#include "kernels/hopper/decode/warps/gemm.cuh"
#include "kernels/hopper/decode/warps/head_norms.cuh"
#include "kernels/hopper/sm90/math.cuh"

namespace coda::hopper::decode {

/// Lane l gives the maximum or sum over the 8 lanes that hold the same columns of a result.
__device__ __forceinline__ float column_max(float value) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
    return value;
}
__device__ __forceinline__ float column_sum(float value) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
    return value;
}

template <int kHeadDim, bool kSharesCaches>  // kSharesCaches: Instance::shares
class AttentionWarp {
    static constexpr int kPositions = block_positions(kHeadDim), kTiles = kPositions / kTileRows;
    static constexpr int kRowBytes = 2 * kHeadDim, kPairs = kHeadDim / 64;  // pairs of columns of a lane
    static constexpr int kRowLoads = kHeadDim / 4;                          // of 4 columns
    static constexpr int kQueryLoads = 4 * kRowLoads / 32;                  // of a lane at a time: of four heads

  public:
    __device__ AttentionWarp(const WarpContext& ctx, const DecodeOp& op, const StepTokens& tokens, const WorkItem& item)
        : ctx_(ctx), op_(op), tokens_(tokens), step_(tokens.step), item_(item), group_(ctx.shape().group()) {}

    /// Adds blocks warp, warp + 8, ... of a tile, whose stages these are, and stores the sums.
    __device__ void run(const AttentionTile& tile, OwnStages stage) {
        const int length = ctx_.planned(tile.sequence, step_);
        // Visible positions from the tile's first one on.
        const int end = ctx_.visible(length) - tile.first_block * kPositions;
        const bool has_second = !kSharesCaches && end >= 2 && is_own(tile, (end - 2) / kPositions);
        const bool has_newest = is_own(tile, (end - 1) / kPositions);
        if (has_second) fetch_stored(tile, length - 2);
        const bool has_norms =
            ctx_.extended && ctx_.shape().head_norms;  // then `newest` comes with them (head_norms.cuh)
        fetch(tile, has_newest && !has_norms);
        if constexpr (kSharesCaches) fetch_earlier(tile, end);
        if (has_norms) {
            const NewestRow row{tile.sequence, tile.kv_head, has_newest ? length - 1 : -1,
                                tokens_.running(tile.sequence)};
            const float2 rho = take_norms<kHeadDim, kSharesCaches>(ctx_.state().arguments, ctx_.shared, row, item_);
            rho_[0] = rho.x;
            rho_[1] = rho.y;
        }
        for (int block = ctx_.warp; block < tile.blocks; block += kConsumerWarps) {
            const int valid = end - block * kPositions;
            char* rows = stage.wait_full(ctx_, item_);
            if (valid <= kPositions + (kSharesCaches ? op_.earlier(tile.sequence) : 1)) {
                if (valid <= kPositions) put_row(0, rows, valid - 1);
                if constexpr (kSharesCaches)
                    put_earlier(tile, rows, valid);
                else if (valid >= 2)
                    put_row(1, rows, valid - 2);
                // The next copy into this stage comes after these writes.
                ptx::fence_async_shared();
                __syncwarp();
            }
            add_block(rows, min(kPositions, valid));
            stage.release(ctx_);
        }
        __syncwarp();  // all lanes have used the input
        write(ctx_.attention_partial(ctx_.warp));
    }

  private:
    __device__ bool is_own(const AttentionTile& tile, int block) const {
        return block < tile.blocks && block % kConsumerWarps == ctx_.warp;
    }

    __device__ int share(int i) const { return ctx_.lane + 32 * i; }
    __device__ KeyValueShare<kHeadDim> own(int i) const { return {share(i)}; }
    __device__ uint2* kept(int row, int i) const { return own(i).kept(ctx_.input(), row); }

    __device__ void fetch_stored(const AttentionTile& tile, int position) const {
#pragma unroll
        for (int i = 0; i < kPairs; ++i)
            *kept(1, i) = __ldcg(own(i).stored(op_, ctx_.shape(), tile.sequence, tile.kv_head, position));
    }
    /// The tokens before the tile's own that this step makes too, as far as blocks of this warp have them.
    __device__ void fetch_earlier(const AttentionTile& tile, int end) const {
        EarlierRows rows{tile.sequence, tile.kv_head, 0};
        for (int row = 1; row <= op_.earlier(tile.sequence); ++row)
            if (end > row && is_own(tile, (end - 1 - row) / kPositions)) rows.wanted |= 1u << row;
        if (rows.wanted != 0) take_earlier<kHeadDim>(ctx_.state().arguments, ctx_.shared, rows, item_);
    }
    __device__ void put_earlier(const AttentionTile& tile, char* rows, int valid) const {
        for (int row = 1; row <= op_.earlier(tile.sequence); ++row) {
            const int position = valid - 1 - row;
            if (position >= 0 && position < kPositions) put_row(row, rows, position);
        }
    }
    /// Each lane writes what it kept.
    __device__ void put_row(int row, char* rows, int position) const {
#pragma unroll
        for (int i = 0; i < kPairs; ++i)
            *reinterpret_cast<uint2*>(rows + (own(i).of_value() ? kBlockHalfBytes : 0) + position * kRowBytes +
                                      2 * own(i).column()) = *kept(row, i);
    }

    /// Fetches the queries to shared memory, and the newest key and value where they are wanted. All words at once, but
    /// for the queries of more than four heads of 128.
    __device__ void fetch(const AttentionTile& tile, bool want_newest) const {
        constexpr int kHeadWords = kHeadDim / 2;
        const Shape& shape = ctx_.shape();
        const std::uint64_t* words = ctx_.words(ctx_.arguments.exchange.qkv) +
                                     std::int64_t{tile.sequence} * (shape.heads + 2 * shape.kv_heads) * kHeadWords;
        const std::uint64_t* key = words + (shape.heads + tile.kv_head) * kHeadWords;
        const int to_value = shape.kv_heads * kHeadWords, loads = group_ * kRowLoads;
        words += tile.kv_head * group_ * kHeadWords;
        __syncwarp();  // all lanes have used the queries of the tile before
#pragma unroll 1
        for (int first = 0; first < loads; first += 32 * kQueryLoads) {
            fetch_at_once(words + 2 * first, min(loads - first, 32 * kQueryLoads), key, to_value, want_newest,
                          ctx_.input() + AttentionInput::queries(kHeadDim, kSharesCaches) +
                              first / kRowLoads * AttentionInput::query_pitch(kHeadDim));
            want_newest = false;
        }
        __syncwarp();
    }
    __device__ void fetch_at_once(const std::uint64_t* from, int loads, const std::uint64_t* key, int to_value,
                                  bool want_newest, char* to) const {
        const std::uint32_t epoch = item_.epoch - 1;
        ptx::LlPair query[kQueryLoads], row[kPairs];
        for (ptx::LlPair& words : query) words = ll_pair_without_data(epoch);
        for (ptx::LlPair& words : row) words = ll_pair_without_data(epoch);
        ctx_.watchdog.wait_together(item_, Awaited::input, [&] {
            std::uint32_t bits = 0;
#pragma unroll
            for (int u = 0; u < kQueryLoads; ++u) ptx::load_ll_pair(query[u], from + 2 * share(u), share(u) < loads);
#pragma unroll
            for (int i = 0; i < kPairs; ++i)
                ptx::load_ll_pair(row[i], key + (own(i).of_value() ? to_value : 0) + own(i).column() / 2, want_newest);
#pragma unroll
            for (const ptx::LlPair& words : query) bits |= missing(words, epoch);
#pragma unroll
            for (const ptx::LlPair& words : row) bits |= missing(words, epoch);
            return bits == 0;
        });
#pragma unroll
        for (int u = 0; u < kQueryLoads; ++u)
            if (share(u) < loads)
                *reinterpret_cast<uint2*>(to + share(u) / kRowLoads * AttentionInput::query_pitch(kHeadDim) +
                                          2 * own(u).column()) = ll_data_pair(query[u]);
        if (want_newest)
#pragma unroll
            for (int i = 0; i < kPairs; ++i) *kept(0, i) = ll_data_pair(row[i]);
    }

    __device__ void add_block(const char* rows, int valid) {
        const int lane = ctx_.lane;
        char* input = ctx_.input();
        auto* exponentials = reinterpret_cast<float*>(input + AttentionInput::kExponentials);
        auto* factors = reinterpret_cast<float*>(input + AttentionInput::factors(kHeadDim));
        const float scale = kLog2e * rsqrtf(static_cast<float>(kHeadDim));
        const char* keys = rows + lane_row(lane) * kRowBytes + 2 * lane_column(lane);
        const char* queries = input + AttentionInput::queries(kHeadDim, kSharesCaches) +
                              lane_row(lane) * AttentionInput::query_pitch(kHeadDim) + 2 * lane_column(lane);
        int blocks = kHeadDim / kBlockColumns;
        ptx::hide_origin(blocks);  // a loop as in the GEMMs: unrolled, all of a block's loads would take registers
        float logit[kTiles][4];
        float largest[2] = {maximum_[0], maximum_[1]};
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
            Sums sums[1];
            const char* first = keys + t * kTileRows * kRowBytes;
            multiply<1>(sums, {first, first + 16, 8 * kRowBytes, kBlockRowBytes},
                        {queries, 0, {lane_row(lane) < group_}}, blocks);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const bool inside = t * kTileRows + result_row(lane, i) < valid;
                logit[t][i] = inside ? scale * sums[0].total(i) : -INFINITY;
                if (ctx_.extended) logit[t][i] *= rho_[i % 2];
                largest[i % 2] = fmaxf(largest[i % 2], logit[t][i]);
            }
        }
        float factor[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            largest[c] = column_max(largest[c]);
            factor[c] = ptx::exp2_approximate(maximum_[c] - largest[c]);
            maximum_[c] = largest[c];
            total_[c] *= factor[c];
        }
        __syncwarp();  // all lanes have used the exponentials of the block before
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const float2 e{ptx::exp2_approximate(logit[t][i] - largest[0]),
                               ptx::exp2_approximate(logit[t][i + 1] - largest[1])};
                total_[0] += e.x;
                total_[1] += e.y;
                const int position = t * kTileRows + result_row(lane, i);
                *reinterpret_cast<float2*>(exponentials + position * kMaxGroup + result_column(lane, i)) = e;
            }
        if (lane < 4) *reinterpret_cast<float2*>(factors + 2 * lane) = {factor[0], factor[1]};
        __syncwarp();
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (4 * half < group_)
                add_values(sums_[half], rows + kBlockHalfBytes, exponentials + 4 * half, factors + 4 * half, valid);
    }

    /// Of four heads. Positions behind the last valid one have the exponential 0: the last one stands in for their
    /// rows, which may hold anything.
    __device__ void add_values(float (&sums)[4][2 * kPairs], const char* values, const float* exponentials,
                               const float* factors, int valid) const {
        constexpr int kAtOnce = 8 / kPairs;
        static_assert(kPositions % kAtOnce == 0);
#pragma unroll
        for (int g = 0; g < 4; ++g)
#pragma unroll
            for (int j = 0; j < 2 * kPairs; ++j) sums[g][j] *= factors[g];
        const char* columns = values + 4 * ctx_.lane;
#pragma unroll 1
        for (int first = 0; first < valid; first += kAtOnce) {
            std::uint32_t pair[kAtOnce][kPairs];
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
                for (int j = 0; j < kPairs; ++j)
                    pair[u][j] = *reinterpret_cast<const std::uint32_t*>(
                        columns + min(first + u, valid - 1) * kRowBytes + 128 * j);
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                const float4 e = *reinterpret_cast<const float4*>(exponentials + (first + u) * kMaxGroup);
                const float of[4] = {e.x, e.y, e.z, e.w};
#pragma unroll
                for (int j = 0; j < kPairs; ++j) {
                    const float2 value = unpack_bf16(pair[u][j]);
#pragma unroll
                    for (int g = 0; g < 4; ++g) {
                        sums[g][2 * j] += of[g] * value.x;
                        sums[g][2 * j + 1] += of[g] * value.y;
                    }
                }
            }
        }
    }

    /// Per query head its sums; then every head's maximum, then Σ e.
    __device__ void write(float* partial) const {
#pragma unroll
        for (int g = 0; g < kMaxGroup; ++g) {
            if (g >= group_) continue;
#pragma unroll
            for (int j = 0; j < kPairs; ++j)
                *reinterpret_cast<float2*>(partial + g * kHeadDim + 2 * ctx_.lane + 64 * j) = {
                    sums_[g / 4][g % 4][2 * j], sums_[g / 4][g % 4][2 * j + 1]};
        }
        float* statistics = partial + group_ * kHeadDim;
        const float total[2] = {column_sum(total_[0]), column_sum(total_[1])};
        if (ctx_.lane < 4) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                statistics[2 * ctx_.lane + c] = maximum_[c];
                statistics[kMaxGroup + 2 * ctx_.lane + c] = total[c];
            }
        }
        __syncwarp();
    }

    const WarpContext& ctx_;
    const DecodeOp& op_;
    const StepTokens& tokens_;
    int step_;  // of tokens_, in a register
    const WorkItem& item_;
    int group_;
    // Of the query heads 2 (lane % 4) and + 1; the total of this lane's positions.
    float rho_[2] = {1, 1};  // of a norm of heads
    float maximum_[2] = {-INFINITY, -INFINITY}, total_[2] = {};
    float sums_[2][4][2 * kPairs] = {};
};

/// A consumer warp's share of attention.
template <int kHeadDim, bool kSharesCaches>
__device__ __forceinline__ ConsumerCounts run_attention(const WarpContext& ctx, const DecodeOp& op,
                                                        const StepTokens& tokens, WorkItem item,
                                                        ConsumerCounts counts) {
    // Needed at attn_out. But all SMs wait for attn_out's results, and here for the queries.
    if (ctx.lamport && !op.embedded) await_arrivals(ctx, item);
    const auto tiles = ctx.attention_tiles(tokens.step, kHeadDim);
    const OwnTiles own = own_tiles(tiles.number(), op.rotation, ctx.sm, ctx.grid());
    for (int index = 0; index < own.number; ++index) {
        const AttentionTile tile = tiles.tile(own.tile(index));
        item.tile = own.tile(index);
        if (ctx.int4) await_attention_read(ctx, item);
        ctx.stamp(item, Stamp::ready);
        if (ctx.warp < tile.blocks) {
            AttentionWarp<kHeadDim, kSharesCaches> warp(ctx, op, tokens, item);
            warp.run(tile, OwnStages(ctx, counts.stage, 0));
        }
        __syncwarp();
        if (ctx.lane == 0) {
            ++ctx.state().attention_tiles[ctx.warp];
            ptx::mbarrier_arrive(ptx::shared_address(&ctx.state().attention_full));
        }
        __syncwarp();
        if (!ctx.int4) await_attention_read(ctx, item);
        counts.stage.advance_far(tile.blocks, ctx.layout().stages);
    }
    return counts;
}

}  // namespace coda::hopper::decode
