// Waits that end: by what they wait for, by a stop, or by the watchdog, which says what was missing. Device.
//
// A thread whose wait ends otherwise exits: the kernel has no barrier of the hardware that would miss it. Threads that
// wait for what it would have done run into their own limit. The producer first lets its copies land (producer.cuh).
#pragma once

#include "kernels/hopper/decode/plan/state.h"
#include "kernels/hopper/decode/report/report.h"
#include "kernels/hopper/ptx/handoff.cuh"
#include "kernels/hopper/ptx/mbarrier_poll.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/ptx/words.cuh"

namespace coda::hopper::decode {

/// What a thread does, for the watchdog's message.
struct Place {
    int token = 0, stage = 0, tile = -1;
    std::uint32_t epoch = 0;
};

class Watch {
  public:
    static constexpr int kBarrierTurns = 4;  // of waits for a barrier, which last some microseconds each

    __device__ Watch(std::uint64_t* report, std::uint64_t limit, KernelState& state)
        : report_(report), limit_(limit), leaving_(ptx::shared_address(&state.leaving)) {}

    /// Waits until ready() or, returning false, until all are to leave.
    template <int kTurns = 64, class Ready>  // a look costs about as much as a turn that polls global memory
    __device__ __forceinline__ bool wait(const Place& place, Awaited awaited, const Ready& ready) const {
        std::uint64_t begin = 0;
        for (int turn = 1; !ready(); ++turn)
            if (turn % kTurns == 0 && (begin = look(report_, limit_, leaving_, place, awaited, begin)) == 0)
                return false;
        return true;
    }
    /// The same for threads that exit when all leave.
    template <int kTurns = 64, class Ready>
    __device__ __forceinline__ void wait_or_exit(const Place& place, Awaited awaited, const Ready& ready) const {
        if (!wait<kTurns>(place, awaited, ready)) ptx::exit_thread();
    }
    __device__ __forceinline__ void wait_barrier(const Place& place, Awaited awaited, const std::uint64_t* barrier,
                                                 std::uint32_t parity) const {
        const std::uint32_t address = ptx::shared_address(barrier);
        wait_or_exit<kBarrierTurns>(place, awaited, [=] { return ptx::mbarrier_try_wait(address, parity); });
    }

    __device__ void leave() const { ptx::store_shared_release(leaving_, 1); }

  private:
    /// Looks around during a wait that began at `begin`, 0: now. Returns when it began, 0: all are to leave. Everything
    /// by value, so that callers keep it in registers.
    __device__ static __forceinline__ std::uint64_t look(std::uint64_t* report, std::uint64_t limit,
                                                         std::uint32_t leaving, Place place, Awaited awaited,
                                                         std::uint64_t begin) {
        if (ptx::load_shared_acquire(leaving) != 0) return 0;
        const std::uint64_t now = ptx::global_time();
        if (begin == 0) return now;
        if (now - begin < limit) return begin;
        const LateWait wait{.awaited = awaited,
                            .token = place.token,
                            .stage = place.stage,
                            .tile = place.tile,
                            .sm = static_cast<int>(blockIdx.x),
                            .warp = static_cast<int>(threadIdx.x / 32)};
        atomicMax(reinterpret_cast<unsigned long long*>(report), key_of(wait));
        return 0;
    }

    std::uint64_t* report_;
    std::uint64_t limit_;
    std::uint32_t leaving_;
};

}  // namespace coda::hopper::decode
