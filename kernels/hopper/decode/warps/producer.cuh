// The producer: one thread, which brings every chunk of an SM into the ring, in the order of the stages, over the ends
// of tiles, stages, layers and steps. Device.
//
// Copies that are on their way slow down the words of others, so at most Layout::in_flight are asked for at a time.
//
// Copies for step t run ahead of the close of step t - 1. They bring positions up to n - 3 of n, which the close of
// step t - 2 has ordered; the two last ones a consumer writes over what the copy brought (attention.cuh).
#pragma once

#include "kernels/hopper/decode/exchange/self.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/stream.cuh"

namespace coda::hopper::decode {

template <int kHeadDim>
class Producer {
    static constexpr std::uint32_t kHalfBytes = kBlockHalfBytes;

  public:
    __device__ explicit Producer(const Self& self) : self_(self), policy_(ptx::evict_first_policy()) {}

    __device__ void run() {
        if (self_.any_at_start()) all_steps();
        drain();
    }

  private:
    /// Ends early where all are to leave.
    __device__ void all_steps() {
        for (int token = 0; token < self_.arguments.tokens; ++token)
            for (int s = 0; s < self_.arguments.stage_count; ++s) {
                place_ = self_.place(token, s);
                const Stage& stage = self_.stages[s];
                self_.stamp(place_, Stamp::begin);
                const int after = s + 1 < self_.arguments.stage_count ? s + 1 : 0;
                if (is_product(self_.stages[after].kind)) ptx::prefetch_map(self_.map(after));
                if (is_product(stage.kind) && !product(stage, self_.map(s))) return;
                if (stage.kind == StageKind::attention && !attention(stage, token)) return;
            }
    }

    /// All copies land before the SM's shared memory may go.
    __device__ void drain() {
        for (; landed_.slot != next_.slot || landed_.round != next_.round; landed_.go_on(self_.layout().chunks))
            ptx::mbarrier_wait(ptx::shared_address(&self_.state.full[landed_.slot]), landed_.round & 1);
    }

    /// Waits for room, and announces a chunk of so many bytes.
    __device__ bool begin(std::uint32_t bytes) {
        const int ring = self_.layout().chunks;
        if (count_ >= static_cast<std::uint32_t>(self_.layout().in_flight)) {
            if (!wait(Awaited::chunk, self_.state.full[landed_.slot], landed_.round)) return false;
            landed_.go_on(ring);
        }
        if (!wait(Awaited::free_chunk, self_.state.empty[next_.slot], next_.round ^ 1)) return false;
        ptx::mbarrier_arrive_expect(full(), bytes);
        self_.stamp(place_, Stamp::ready);
        return true;
    }
    /// A consumer may look at the chunk's barrier: it is in the chunk's own round now.
    __device__ void end() {
        ptx::store_shared_release(ptx::shared_address(&self_.state.issued), ++count_);
        next_.go_on(self_.layout().chunks);
    }
    __device__ bool wait(Awaited awaited, const std::uint64_t& barrier, std::uint32_t round) const {
        const std::uint32_t address = ptx::shared_address(&barrier);
        return self_.watch.wait<Watch::kBarrierTurns>(place_, awaited,
                                                      [=] { return ptx::mbarrier_try_wait(address, round & 1); });
    }
    /// Of the chunk that has begun.
    __device__ std::uint32_t full() const { return ptx::shared_address(&self_.state.full[next_.slot]); }
    __device__ std::uint32_t memory() const {
        return ptx::shared_address(self_.shared) + static_cast<std::uint32_t>(next_.slot * kChunkBytes);
    }

    __device__ bool product(const Stage& stage, const void* map) {
        const OwnTiles own = self_.tiles_of(stage);
        const Slices slices = slices_of(stage.columns);
        const bool whole = in_whole_blocks(stage.columns);
        return each_chunk(slices, own.number, tiles_together(slices, self_.shape().batch), [&](ProductChunk chunk) {
            place_.tile = own.tile(chunk.tile);
            const int row = place_.tile * kTileRows, first = slices.first_block(chunk.slice);
            const int blocks = whole ? slices.most : slices.blocks_of(chunk.slice);
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

    __device__ bool attention(const Stage& stage, int token) {
        if (token >= 2 && !self_.watch.wait(place_, Awaited::close, [&] {
                return static_cast<int>(ptx::load_shared_acquire(ptx::shared_address(&self_.state.closed))) >=
                       token - 1;
            }))
            return false;
        ptx::fence_async();
        constexpr int kPositions = block_positions(kHeadDim);
        const Shape& shape = self_.shape();
        const auto units = self_.attention_units(token, kHeadDim);
        const OwnTiles own = own_tiles(units.number(), stage.rotation, self_.sm, self_.grid);
        for (int index = 0; index < own.number; ++index) {
            const AttentionUnit unit = units.unit(own.tile(index));
            place_.tile = own.tile(index);
            const std::int64_t head =
                (std::int64_t{unit.sequence} * shape.kv_heads + unit.kv_head) * shape.context * kHeadDim;
            const int length = self_.planned(unit.sequence, token);
            for (int block = 0; block < unit.blocks; ++block) {
                const int first = (unit.first_block + block) * kPositions;
                const auto bytes = static_cast<std::uint32_t>(2 * kHeadDim * min(kPositions, length - first));
                if (!begin(2 * bytes)) return false;
                const std::int64_t at = head + std::int64_t{first} * kHeadDim;
                ptx::bulk_stream(memory(), stage.keys + at, bytes, full(), policy_);
                ptx::bulk_stream(memory() + kHalfBytes, stage.values + at, bytes, full(), policy_);
                end();
            }
        }
        return true;
    }

    /// A chunk's place in the ring, and how often the ring has been filled before.
    struct Turn {
        int slot = 0;
        std::uint32_t round = 0;
        __device__ void go_on(int ring) {
            if (++slot < ring) return;
            slot = 0;
            ++round;
        }
    };

    const Self self_;
    std::uint64_t policy_;
    std::uint32_t count_ = 0;  // chunks so far
    Turn next_, landed_;       // the chunk that comes; the first that may not have landed
    Place place_;
};

}  // namespace coda::hopper::decode
