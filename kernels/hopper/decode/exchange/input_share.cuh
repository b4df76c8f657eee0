// Which sequences of its input a consumer warp fetches and makes fixed point. From nine sequences on the SMs of a pair,
// two CTAs of a cluster, share the work where both have tiles: each takes one octet of sequences, and stores the
// results in the other's shared memory too. Device.
//
// Per warp of an SM there are two barriers. `lent`: the partner's warp has no more use for what its input holds, so
// this one may store there. `delivered`: all that the partner's warp stores here has come.
#pragma once

#include "kernels/hopper/decode/exchange/context.cuh"
#include "kernels/hopper/decode/plan/input_share.h"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/remote.cuh"

namespace coda::hopper::decode {

class InputShare {
  public:
    /// shared: the partner's warp has the same input, and converts the other octet.
    __device__ __forceinline__ InputShare(const WarpContext& ctx, bool shared)
        : own_(shared ? octets_of_rank(ctx.rank()) : OctetRange{0, ctx.octets}), shared_(shared) {}

    __device__ __forceinline__ const OctetRange& own() const { return own_; }
    __device__ __forceinline__ bool shared() const { return shared_; }

    /// Lends the warp's input to the partner. bytes: of one sequence's results.
    __device__ __forceinline__ void lend(const WarpContext& ctx, int bytes) const {
        if (!shared_) return;
        __syncwarp();
        if (ctx.lane == 0) {
            const int batch = ctx.shape().batch;
            const int others = batch - (own_.end_sequence(batch) - own_.first_sequence());
            ptx::mbarrier_arrive_expect(ptx::shared_address(&ctx.state().delivered[ctx.warp]),
                                        static_cast<std::uint32_t>(others * bytes));
            ptx::mbarrier_arrive_remote(ptx::shared_address(&ctx.state().lent[ctx.warp]), ctx.rank() ^ 1);
        }
    }
    /// Until the partner has lent its own.
    __device__ __forceinline__ void await_loan(const WarpContext& ctx, const WorkItem& item) const {
        if (!shared_) return;
        ctx.watchdog.wait_barrier(item, Awaited::partner, &ctx.state().lent[ctx.warp], exchanges(ctx) & 1);
    }
    /// What is added to an address in this SM's shared memory to have the partner's.
    __device__ __forceinline__ std::uint32_t away(const WarpContext& ctx) const {
        const std::uint32_t here = ptx::shared_address(ctx.shared);
        return ptx::remote_address(here, ctx.rank() ^ 1) - here;
    }
    __device__ __forceinline__ std::uint32_t remote_barrier(const WarpContext& ctx) const {
        return ptx::shared_address(&ctx.state().delivered[ctx.warp]) + away(ctx);
    }
    /// Until all of the partner's results are here. squares: lane b has its own sequences' sums of squares; it sends
    /// them, and returns all sequences'.
    __device__ __forceinline__ float receive(const WarpContext& ctx, float square, bool squares,
                                             const WorkItem& item) const {
        if (!shared_) return square;
        const int batch = ctx.shape().batch;
        const bool own = ctx.lane >= own_.first_sequence() && ctx.lane < own_.end_sequence(batch);
        float* places = ctx.state().partner_squares[ctx.warp];
        if (squares && own)
            ptx::store_remote(ptx::shared_address(places + ctx.lane) + away(ctx), square, remote_barrier(ctx));
        ctx.watchdog.wait_barrier(item, Awaited::partner, &ctx.state().delivered[ctx.warp], exchanges(ctx) & 1);
        if (squares && !own && ctx.lane < batch) square = places[ctx.lane];
        __syncwarp();
        if (ctx.lane == 0) ++ctx.state().exchanges[ctx.warp];
        __syncwarp();
        return square;
    }

  private:
    __device__ __forceinline__ std::uint32_t exchanges(const WarpContext& ctx) const {
        return ctx.state().exchanges[ctx.warp];
    }

    OctetRange own_;
    bool shared_;
};

}  // namespace coda::hopper::decode
