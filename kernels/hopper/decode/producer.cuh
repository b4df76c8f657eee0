// The producer: one thread, which brings every chunk of an SM into the ring, in the order of the stages, over the ends
// of tiles, stages, layers and steps. Device.
//
// Copies that are on their way slow down the words of others, so at most Layout::in_flight are asked for at a time.
//
// Copies for step t run ahead of the close of step t - 1. They bring positions up to n - 3 of n, which the close of
// step t - 2 has ordered; the two last ones a consumer writes over what the copy brought (attention.cuh).
#pragma once

#include "kernels/hopper/decode/self.cuh"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/stream.cuh"

namespace coda::hopper::decode {

class Producer {
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
                place_ = self_.place(token, s, s);
                const Stage& stage = self_.stages[s];
                if (is_product(stage.kind) && !product(stage)) return;
                if (stage.kind == StageKind::attention && !attention(stage, token)) return;
            }
    }

    /// All copies land before the SM's shared memory may go.
    __device__ void drain() {
        const auto ring = static_cast<std::uint32_t>(self_.layout().chunks);
        for (std::uint32_t n = count_ > ring ? count_ - ring : 0; n < count_; ++n)
            ptx::mbarrier_wait(barrier(self_.state.full, n), n / ring & 1);
    }

    __device__ std::uint32_t barrier(const std::uint64_t* barriers, std::uint32_t n) const {
        return ptx::shared_address(barriers + n % static_cast<std::uint32_t>(self_.layout().chunks));
    }

    /// Waits for room, and announces a chunk of so many bytes.
    __device__ bool begin(std::uint32_t bytes) {
        const auto ring = static_cast<std::uint32_t>(self_.layout().chunks);
        const auto cap = static_cast<std::uint32_t>(self_.layout().in_flight);
        if (count_ >= cap) {
            const std::uint32_t earlier = count_ - cap, full = barrier(self_.state.full, earlier);
            if (!self_.watch.wait<Watch::kBarrierTurns>(
                    place_, Awaited::chunk, [=] { return ptx::mbarrier_try_wait(full, earlier / ring & 1); }))
                return false;
        }
        const std::uint32_t empty = barrier(self_.state.empty, count_), round = count_ / ring;
        if (!self_.watch.wait<Watch::kBarrierTurns>(place_, Awaited::free_chunk,
                                                    [=] { return ptx::mbarrier_try_wait(empty, (round & 1) ^ 1); }))
            return false;
        ptx::mbarrier_arrive_expect(barrier(self_.state.full, count_), bytes);
        return true;
    }
    /// A consumer may look at the chunk's barrier: it is in the chunk's own round now.
    __device__ void end() { ptx::store_shared_release(ptx::shared_address(&self_.state.issued), ++count_); }

    __device__ bool product(const Stage& stage) {
        const OwnTiles own = self_.tiles_of(stage);
        const Slices slices = slices_of(stage.columns);
        for (int index = 0; index < own.number; ++index) {
            const Bf16* rows = stage.weights + std::int64_t{own.tile(index)} * kTileRows * stage.ld;
            place_.tile = own.tile(index);
            for (int slice = 0; slice < slices.number; ++slice) {
                const auto bytes = static_cast<std::uint32_t>(2 * kStepColumns * slices.steps_of(slice));
                if (!begin(kTileRows * bytes)) return false;
                const Bf16* from = rows + slices.first_column(slice);
                const std::uint32_t to = ptx::shared_address(self_.chunk(count_));
                const std::uint32_t full = barrier(self_.state.full, count_);
#pragma unroll 4
                for (int row = 0; row < kTileRows; ++row)
                    ptx::bulk_stream(to + row * kRowPitch, from + std::int64_t{row} * stage.ld, bytes, full, policy_);
                end();
            }
        }
        return true;
    }

    __device__ bool attention(const Stage& stage, int token) {
        if (token >= 2 && !self_.watch.wait(place_, Awaited::close, [&] {
                return static_cast<int>(ptx::load_shared_acquire(ptx::shared_address(&self_.state.closed))) >=
                       token - 1;
            }))
            return false;
        ptx::fence_async();
        const Shape& shape = self_.shape();
        const int positions = block_positions(shape.head_dim);
        const auto units = self_.attention_units(token);
        const OwnTiles own = own_tiles(units.number(), stage.rotation, self_.sm, self_.grid);
        for (int index = 0; index < own.number; ++index) {
            const AttentionUnit unit = units.unit(own.tile(index));
            place_.tile = own.tile(index);
            const std::int64_t head =
                (std::int64_t{unit.sequence} * shape.kv_heads + unit.kv_head) * shape.context * shape.head_dim;
            const int length = self_.planned(unit.sequence, token);
            for (int block = 0; block < unit.blocks; ++block) {
                const int first = (unit.first_block + block) * positions;
                const auto bytes = static_cast<std::uint32_t>(2 * shape.head_dim * min(positions, length - first));
                if (!begin(2 * bytes)) return false;
                const std::int64_t at = head + std::int64_t{first} * shape.head_dim;
                const std::uint32_t to = ptx::shared_address(self_.chunk(count_));
                const std::uint32_t full = barrier(self_.state.full, count_);
                ptx::bulk_stream(to, stage.keys + at, bytes, full, policy_);
                ptx::bulk_stream(to + kBlockHalfBytes, stage.values + at, bytes, full, policy_);
                end();
            }
        }
        return true;
    }

    const Self self_;
    std::uint64_t policy_;
    std::uint32_t count_ = 0;  // chunks so far
    Place place_;
};

}  // namespace coda::hopper::decode
