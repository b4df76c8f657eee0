// Norms of q and k heads. Device.
//
// rho = 1/sqrt(mean z² + eps) of a head needs all of its tiles of qkv, which several SMs make. An exchange of their
// sums would be one more hand-over between SMs. Attention waits for all tiles of a head anyway. So qkv hands over gain
// ⊙ z, rotated, and Σ z² of each tile, and attention multiplies a query's logits and the newest key by rho. That key
// comes in fp32 and is rounded once. Attention stores it in the cache, with its value.
//
// The functions are not inlined, and read a copy of the arguments in shared memory, as run_choice() does: within the
// kernel's loops their registers would be spilled.
#pragma once

#include "kernels/hopper/decode/exchange/context.cuh"
#include "kernels/hopper/decode/warps/key_value_share.cuh"
#include "kernels/hopper/decode/warps/rotate.cuh"
#include "kernels/hopper/sm90/bf16_pair.cuh"

namespace coda::hopper::decode {

/// The end of qkv's epilogue for a pair of columns, z: all lanes of a warp, of which eight neighbours have the pairs of
/// a sequence. gain and angle: 1 and none for v. Lanes that are not active hand over nothing.
inline __device__ __noinline__ void finish_with_norm(const Arguments& arguments, std::uint32_t epoch, int sequence,
                                                     bool active, int column, float2 z, float2 gain, float2 angle) {
    const Shape& shape = arguments.operands.shape;
    const Exchange& exchange = arguments.exchange;
    if (const int tile = column / kTileRows; tile < shape.rotated_tiles()) {  // the same for all lanes
        float square = fmaf(z.x, z.x, z.y * z.y);
#pragma unroll
        for (int lanes = 1; lanes < kTileRows / 2; lanes *= 2) square += __shfl_xor_sync(kAllLanes, square, lanes);
        if (active && column % kTileRows == 0)
            ptx::store_ll(arguments.words + exchange.squares + sequence * shape.rotated_tiles() + tile,
                          ll_word(__float_as_uint(square), epoch));
    }
    const auto [first, second] = rotate(Pair<float>{gain.x * z.x, gain.y * z.y}, angle);
    if (!active) return;
    const int from_keys = column - shape.q_columns();
    if (from_keys < 0)
        ptx::store_ll(arguments.words + exchange.qkv + (std::int64_t{sequence} * shape.qkv_columns() + column) / 2,
                      ll_word(pack_bf16(first, second), epoch));
    else
        ptx::store_ll_pair(arguments.words + exchange.newest + sequence * 2 * shape.kv_columns() + from_keys,
                           {ll_word(__float_as_uint(first), epoch), ll_word(__float_as_uint(second), epoch)});
}

/// What a warp takes of the newest position of a sequence, besides the queries.
struct NewestRow {
    int sequence, kv_head;
    int position;  // -1: only the queries' rho
    bool into_cache;
};

/// Waits for the rho of a key/value head's group, and where a position is given for its key and value, which it keeps
/// in the warp's input memory. Returns rho of the query heads 2 (lane % 4) and + 1.
/// kSharesCaches: Instance::shares.
template <int kHeadDim, bool kSharesCaches>
__device__ __noinline__ float2 take_norms(const Arguments& shared_arguments, char* shared, const NewestRow row,
                                          const WorkItem item) {
    using Share = KeyValueShare<kHeadDim>;
    constexpr int kShares = kHeadDim / 64, kHeadTiles = kHeadDim / kTileRows, kSquarePairs = kHeadTiles / 2;
    static_assert(kMaxGroup * kSquarePairs <= 32);
    const WarpContext ctx(shared_arguments, shared, Instance{.shares = kSharesCaches});
    const Shape& shape = ctx.shape();
    const Exchange& exchange = ctx.arguments.exchange;
    const std::uint32_t epoch = item.epoch - 1;
    const bool want_row = row.position >= 0;
    const std::uint64_t* squares = ctx.words(exchange.squares) + row.sequence * shape.rotated_tiles();
    const std::uint64_t* key =
        ctx.words(exchange.newest) + (std::int64_t{row.sequence} * 2 * shape.kv_heads + row.kv_head) * kHeadDim;
    ptx::LlPair of_queries = ll_pair_without_data(epoch), of_key = of_queries, columns[kShares][2];
    for (auto& four : columns)
        for (ptx::LlPair& words : four) words = of_queries;
    ctx.watchdog.wait_together(item, Awaited::input, [&] {
        ptx::load_ll_pair(of_queries, squares + row.kv_head * shape.group() * kHeadTiles + 2 * ctx.lane,
                          ctx.lane < shape.group() * kSquarePairs);
        ptx::load_ll_pair(of_key, squares + (shape.heads + row.kv_head) * kHeadTiles + 2 * (ctx.lane % kSquarePairs),
                          want_row);
#pragma unroll
        for (int i = 0; i < kShares; ++i)
#pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
                const Share share{ctx.lane + 32 * i};
                ptx::load_ll_pair(columns[i][pair],
                                  key + (share.of_value() ? shape.kv_columns() : 0) + share.column() + 2 * pair,
                                  want_row);
            }
        std::uint32_t bits = missing(of_queries, epoch) | missing(of_key, epoch);
#pragma unroll
        for (const auto& four : columns) bits |= missing(four[0], epoch) | missing(four[1], epoch);
        return bits == 0;
    });
    // Of the head whose words kSquarePairs neighbouring lanes have.
    const auto rho_of = [&](const ptx::LlPair& words) {
        const uint2 pair = ll_data_pair(words);
        float sum = __uint_as_float(pair.x) + __uint_as_float(pair.y);
#pragma unroll
        for (int lanes = 1; lanes < kSquarePairs; lanes *= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
        return rsqrtf(sum / static_cast<float>(kHeadDim) + ctx.operands().eps);
    };
    const float rho = rho_of(of_queries), rho_of_key = rho_of(of_key);
    if (want_row) {
        const auto rounded = [](const ptx::LlPair& words, float factor) {
            const uint2 bits = ll_data_pair(words);
            return pack_bf16(factor * __uint_as_float(bits.x), factor * __uint_as_float(bits.y));
        };
#pragma unroll
        for (int i = 0; i < kShares; ++i) {
            const Share share{ctx.lane + 32 * i};
            const float factor = share.of_value() ? 1 : rho_of_key;
            const uint2 four{rounded(columns[i][0], factor), rounded(columns[i][1], factor)};
            *share.kept(ctx.input(), 0) = four;
            if (row.into_cache)
                *share.stored(ctx.op(item.op), shape, ctx.cache_of(ctx.op(item.op), row.sequence), row.kv_head,
                              row.position) = four;
        }
    }
    const int first = ctx.lane % 4 * 2 * kSquarePairs;
    return {__shfl_sync(kAllLanes, rho, first), __shfl_sync(kAllLanes, rho, first + kSquarePairs)};
}

}  // namespace coda::hopper::decode
