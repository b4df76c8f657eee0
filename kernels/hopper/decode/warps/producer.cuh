// The producer: one thread, which loads every stage of an SM's ring in the order of the ops, without a stop at the ends
// of tiles, ops, layers and steps. Device.
//
// Loads in flight slow down the words of other SMs, so at most Layout::in_flight are in flight at the same time.
//
// Copies for step t run ahead of the commit of step t - 1. They bring positions up to n - 3 of n, which the commit of
// step t - 2 has ordered; the two last ones a consumer writes over what the copy brought (attention.cuh). Where members
// of the batch share a cache, a launch is one step, and a consumer writes over all positions of the step.
#pragma once

#include "kernels/hopper/decode/exchange/context.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/stream.cuh"

namespace coda::hopper::decode {

template <int kHeadDim>
class Producer {
    static constexpr std::uint32_t kHalfBytes = kBlockHalfBytes;

  public:
    __device__ explicit Producer(const WarpContext& ctx) : ctx_(ctx), policy_(ptx::evict_first_policy()) {}

    __device__ void run() {
        if (ctx_.any_at_start()) all_steps();
        drain();
    }

  private:
    /// Returns early when the warps of the SM exit.
    __device__ void all_steps() {
        for (int step = 0; step < ctx_.arguments.steps; ++step)
            for (int s = 0; s < ctx_.arguments.op_count; ++s) {
                item_ = ctx_.item(step, s);
                const DecodeOp& op = ctx_.op(s);
                ctx_.stamp(item_, Stamp::begin);
                const int after = s + 1 < ctx_.arguments.op_count ? s + 1 : 0;
                if (ctx_.has_map(ctx_.op(after))) ptx::prefetch_map(ctx_.map(after));
                if (ctx_.has_map(op) && !gemm(op, ctx_.map(s))) return;
                if (ctx_.is_int4(op) && !units(op)) return;
                if (op.kind == OpKind::attention && !attention(op, step)) return;
            }
    }

    /// All copies land before the SM's shared memory may go.
    __device__ void drain() {
        for (; oldest_.slot != next_.slot || oldest_.round != next_.round; oldest_.advance(1, ctx_.layout().stages))
            ptx::mbarrier_wait(ptx::shared_address(&ctx_.state().full[oldest_.slot]), oldest_.round & 1);
    }

    /// Waits for an empty stage, and expects `bytes` in it.
    __device__ bool begin(std::uint32_t bytes) {
        const int ring = ctx_.layout().stages;
        if (count_ >= static_cast<std::uint32_t>(ctx_.layout().in_flight)) {
            if (!wait(Awaited::stage, ctx_.state().full[oldest_.slot], oldest_.round)) return false;
            oldest_.advance(1, ring);
        }
        if (!wait(Awaited::free_stage, ctx_.state().empty[next_.slot], next_.round ^ 1)) return false;
        ptx::mbarrier_arrive_expect(full(), bytes);
        ctx_.stamp(item_, Stamp::ready);
        return true;
    }
    /// A consumer may poll the stage's barrier: it is in the stage's own round now.
    __device__ void end() {
        ptx::store_shared_release(ptx::shared_address(&ctx_.state().issued), ++count_);
        next_.advance(1, ctx_.layout().stages);
    }
    __device__ bool wait(Awaited awaited, const std::uint64_t& barrier, std::uint32_t round) const {
        const std::uint32_t address = ptx::shared_address(&barrier);
        return ctx_.watchdog.wait<Watchdog::kBarrierTurns>(item_, awaited,
                                                           [=] { return ptx::mbarrier_try_wait(address, round & 1); });
    }
    /// Of the stage that has begun.
    __device__ std::uint32_t full() const { return ptx::shared_address(&ctx_.state().full[next_.slot]); }
    __device__ std::uint32_t memory() const {
        return ptx::shared_address(ctx_.shared) + static_cast<std::uint32_t>(next_.slot * stage_bytes(ctx_.int4));
    }

    __device__ bool gemm(const DecodeOp& op, const void* map) {
        const OwnTiles own = ctx_.tiles_of(op);
        const Slices slices = ctx_.slices(op.columns);
        const bool whole = in_whole_blocks(op.columns);
        const int together = tiles_together(slices, ctx_.shape().batch), apart = stage_slices(slices, false);
        return each_k_tile(slices, own.number, together, apart, [&](KTile k_tile) {
            item_.tile = own.tile(k_tile.tile);
            const int row = item_.tile * kTileRows, first = slices.first_block(k_tile.slice);
            const int blocks = whole ? slices.most * apart : slices.first_block(k_tile.slice + apart) - first;
            if (!begin(static_cast<std::uint32_t>(blocks * kBlockBytes))) return false;
            if (whole) {
                ptx::tensor_stream(memory(), map, 0, row, first, full(), policy_);
            } else {
#pragma unroll 1
                for (int block = 0; block < blocks; ++block)
                    ptx::tensor_stream(memory() + static_cast<std::uint32_t>(block * kBlockBytes), map,
                                       (first + block) * kBlockColumns, row, 0, full(), policy_);
            }
            end();
            return true;
        });
    }

    /// A GEMM whose weights are 4-bit integers.
    __device__ bool units(const DecodeOp& op) {
        const OwnTiles own = ctx_.tiles_of(op);
        const Slices slices = ctx_.slices(op.columns);
        const auto row_bytes = std::int64_t{slices.blocks / kUnitBlocks} * kUnitBytes;
        const int together = tiles_together(slices, ctx_.shape().batch), apart = stage_slices(slices, true);
        return each_k_tile(slices, own.number, together, apart, [&](KTile k_tile) {
            item_.tile = own.tile(k_tile.tile);
            const int first = slices.first_block(k_tile.slice), behind = slices.first_block(k_tile.slice + apart);
            const auto bytes = static_cast<std::uint32_t>((behind - first) / kUnitBlocks * kUnitBytes);
            if (!begin(bytes)) return false;
            const char* from =
                static_cast<const char*>(op.weights) + item_.tile * row_bytes + first / kUnitBlocks * kUnitBytes;
            if (bytes > 0) ptx::bulk_stream(memory(), from, bytes, full(), policy_);
            end();
            return true;
        });
    }

    __device__ bool attention(const DecodeOp& op, int step) {
        if (step >= 2 && !ctx_.watchdog.wait(item_, Awaited::commit, [&] {
                return static_cast<int>(ptx::load_shared_acquire(ptx::shared_address(&ctx_.state().committed))) >=
                       step - 1;
            }))
            return false;
        ptx::fence_async();
        constexpr int kPositions = block_positions(kHeadDim);
        const Shape& shape = ctx_.shape();
        const auto tiles = ctx_.attention_tiles(step, kHeadDim);
        const OwnTiles own = own_tiles(tiles.number(), op.rotation, ctx_.sm, ctx_.grid());
        for (int index = 0; index < own.number; ++index) {
            const AttentionTile tile = tiles.tile(own.tile(index));
            item_.tile = own.tile(index);
            const std::int64_t head = (std::int64_t{ctx_.cache_of(op, tile.sequence)} * shape.kv_heads + tile.kv_head) *
                                      shape.context * kHeadDim;
            const int length = ctx_.planned(tile.sequence, step);
            const int hidden = length - ctx_.visible(length);
            for (int block = 0; block < tile.blocks; ++block) {
                const int first = hidden + (tile.first_block + block) * kPositions;
                const auto bytes = static_cast<std::uint32_t>(2 * kHeadDim * min(kPositions, length - first));
                if (!begin(2 * bytes)) return false;
                const std::int64_t at = head + std::int64_t{first} * kHeadDim;
                ptx::bulk_stream(memory(), op.keys + at, bytes, full(), policy_);
                ptx::bulk_stream(memory() + kHalfBytes, op.values + at, bytes, full(), policy_);
                end();
            }
        }
        return true;
    }

    const WarpContext ctx_;
    std::uint64_t policy_;
    std::uint32_t count_ = 0;  // stages so far
    RingSlot next_, oldest_;   // the stage that comes; the first that may not have landed
    WorkItem item_;
};

}  // namespace coda::hopper::decode
