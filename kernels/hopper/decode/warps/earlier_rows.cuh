// Keys and values of the tokens before a tile's own that the same step makes, where members of the batch are of one
// sequence. Device.
//
// SMs store them in the cache while others load it. So attention takes them from the words of qkv, as it takes its own
// token's, rounded alike, and overwrites their rows in the blocks that it has loaded. The function is not inlined: see
// head_norms.cuh.
#pragma once

#include "kernels/hopper/decode/exchange/context.cuh"
#include "kernels/hopper/decode/warps/head_norms.cuh"
#include "kernels/hopper/decode/warps/key_value_share.cuh"

namespace coda::hopper::decode {

struct EarlierRows {
    int sequence, kv_head;  // of the tile
    std::uint32_t wanted;   // bit i: the member of the batch i places before it
};

/// Waits for the wanted keys and values, and keeps the member of bit i as row i of the warp's input memory. With norms
/// of heads each passes through row 0, so the caller takes the newest position afterwards.
template <int kHeadDim>
__device__ __noinline__ void take_earlier(const Arguments& shared_arguments, char* shared, const EarlierRows rows,
                                          const WorkItem item) {
    using Share = KeyValueShare<kHeadDim>;
    constexpr int kShares = kHeadDim / 64, kMost = AttentionInput::kept_rows(true);
    const WarpContext ctx(shared_arguments, shared, Instance{});
    const Shape& shape = ctx.shape();
    const auto wanted = [&](int row) { return (rows.wanted >> row & 1) != 0; };
    if (shape.head_norms) {
        for (int row = 1; row < kMost; ++row)
            if (wanted(row)) {
                take_norms<kHeadDim, true>(shared_arguments, shared,
                                           NewestRow{rows.sequence - row, rows.kv_head, 0, false}, item);
#pragma unroll
                for (int i = 0; i < kShares; ++i) {
                    const Share share{ctx.lane + 32 * i};
                    *share.kept(ctx.input(), row) = *share.kept(ctx.input(), 0);
                }
            }
        return;
    }
    const std::uint32_t epoch = item.epoch - 1;
    const int member_words = shape.qkv_columns() / 2;
    const std::uint64_t* own = ctx.words(ctx.arguments.exchange.qkv) + std::int64_t{rows.sequence} * member_words +
                               (shape.q_columns() + rows.kv_head * kHeadDim) / 2;
    ptx::LlPair words[kMost][kShares];
    for (auto& row : words)
        for (ptx::LlPair& pair : row) pair = ll_pair_without_data(epoch);
    ctx.watchdog.wait_together(item, Awaited::input, [&] {
        std::uint32_t bits = 0;
#pragma unroll
        for (int row = 1; row < kMost; ++row)
#pragma unroll
            for (int i = 0; i < kShares; ++i) {
                const Share share{ctx.lane + 32 * i};
                const int column = (share.of_value() ? shape.kv_columns() : 0) + share.column();
                ptx::load_ll_pair(words[row][i], own - row * member_words + column / 2, wanted(row));
            }
#pragma unroll
        for (const auto& row : words)
#pragma unroll
            for (const ptx::LlPair& pair : row) bits |= missing(pair, epoch);
        return bits == 0;
    });
#pragma unroll
    for (int row = 1; row < kMost; ++row)
#pragma unroll
        for (int i = 0; i < kShares; ++i)
            if (wanted(row)) *Share{ctx.lane + 32 * i}.kept(ctx.input(), row) = ll_data_pair(words[row][i]);
}

}  // namespace coda::hopper::decode
