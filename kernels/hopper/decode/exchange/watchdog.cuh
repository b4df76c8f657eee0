// Waits with a limit: they end when their data has come, when the SM's warps exit, or when the watchdog's time is over,
// which reports what was missing. Device.
//
// A thread whose wait ends otherwise exits: the kernel has no barrier of the hardware that would miss it. Threads that
// wait for what it would have done run into their own limit. The producer first lets its copies land (producer.cuh).
#pragma once

#include "kernels/hopper/decode/plan/shared_state.h"
#include "kernels/hopper/decode/report/report.h"
#include "kernels/hopper/ptx/handoff.cuh"
#include "kernels/hopper/ptx/ll.cuh"
#include "kernels/hopper/ptx/mbarrier_poll.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper::decode {

/// What a thread works on: the watchdog's message names it.
struct WorkItem {
    int step = 0, op = 0, tile = -1;
    std::uint32_t epoch = 0;
};

class Watchdog {
  public:
    static constexpr int kBarrierTurns = 4;  // of waits for a barrier, which last some microseconds each

    __device__ Watchdog(std::uint64_t* report, std::uint64_t limit, SharedState& state)
        : report_(report), limit_(limit), exiting_(ptx::shared_address(&state.exiting)) {}

    /// Waits until ready(). Returns false if the warps of the SM exit first.
    template <int kTurns = 64, class Ready>  // reading the clock costs about as much as a turn that polls global memory
    __device__ __forceinline__ bool wait(const WorkItem& item, Awaited awaited, const Ready& ready) const {
        std::uint64_t begin = 0;
        for (int turn = 1; !ready(); ++turn)
            if (turn % kTurns == 0 && (begin = poll_watchdog(report_, limit_, exiting_, item, awaited, begin)) == 0)
                return false;
        return true;
    }
    /// The same for threads that have nothing to finish: they exit.
    template <int kTurns = 64, class Ready>
    __device__ __forceinline__ void wait_or_exit(const WorkItem& item, Awaited awaited, const Ready& ready) const {
        std::uint64_t begin = 0;
        for (int turn = 1; !ready(); ++turn) {
            if (turn % kTurns != 0) continue;
            if (ptx::load_shared_acquire(exiting_) != 0) leave();
            const std::uint64_t now = ptx::global_time();
            if (begin == 0) begin = now;
            if (now - begin >= limit_) {
                report_late(report_, item.step, item.op, item.tile, awaited);
                leave();
            }
        }
    }
    /// The same for a warp whose lanes wait for different things: none continues before all are ready. Lanes that left
    /// the loop one by one would stay diverged, and each group of them would wait for its next loads by itself.
    template <class Ready>
    __device__ __forceinline__ void wait_together(const WorkItem& item, Awaited awaited, const Ready& ready) const {
        wait_or_exit(item, awaited, [&] { return __all_sync(kAllLanes, ready()) != 0; });
    }
    __device__ __forceinline__ void wait_barrier(const WorkItem& item, Awaited awaited, const std::uint64_t* barrier,
                                                 std::uint32_t parity) const {
        const std::uint32_t address = ptx::shared_address(barrier);
        wait_or_exit<kBarrierTurns>(item, awaited, [=] { return ptx::mbarrier_try_wait(address, parity); });
    }

    __device__ void exit_all() const { ptx::store_shared_release(exiting_, 1); }

  private:
    /// Called during a wait that began at `begin`; 0: now. Returns when it began; 0: the thread is to exit.
    /// Everything by value, so that callers keep it in registers.
    __device__ static __forceinline__ std::uint64_t poll_watchdog(std::uint64_t* report, std::uint64_t limit,
                                                                  std::uint32_t exiting, WorkItem item, Awaited awaited,
                                                                  std::uint64_t begin) {
        if (ptx::load_shared_acquire(exiting) != 0) return 0;
        const std::uint64_t now = ptx::global_time();
        if (begin == 0) return now;
        if (now - begin < limit) return begin;
        report_late(report, item.step, item.op, item.tile, awaited);
        return 0;
    }
    /// Not inlined: code that never runs would stand between instructions that do.
    __device__ static __noinline__ void report_late(std::uint64_t* report, int step, int op, int tile,
                                                    Awaited awaited) {
        const LateWait wait{.awaited = awaited,
                            .step = step,
                            .op = op,
                            .tile = tile,
                            .sm = static_cast<int>(blockIdx.x),
                            .warp = static_cast<int>(threadIdx.x / 32)};
        atomicMax(reinterpret_cast<unsigned long long*>(report), key_of(wait));
    }
    [[noreturn]] __device__ static __forceinline__ void leave() {
        ptx::exit_thread();
        __builtin_unreachable();
    }

    std::uint64_t* report_;
    std::uint64_t limit_;
    std::uint32_t exiting_;
};

}  // namespace coda::hopper::decode
