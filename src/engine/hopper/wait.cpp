#include "src/engine/hopper/wait.h"

#include <chrono>

#include "kernels/hopper/sm90/check.h"
#include "src/core/interrupt.h"
#include "src/core/program.h"

namespace coda {

void wait_for(cudaEvent_t event, bool for_ranks) {
    if (!for_ranks) return CUDA_CHECK(cudaEventSynchronize(event));
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kLook{100};
    for (Clock::time_point looked = Clock::now();;) {
        const cudaError_t status = cudaEventQuery(event);
        if (status == cudaSuccess) return;
        if (status != cudaErrorNotReady) CUDA_CHECK(status);
        if (Clock::now() - looked < kLook) continue;
        looked = Clock::now();
        if (interrupted_for(kPatience)) {
            abandon_program(
                "this rank was asked to stop, and its GPU waits for another rank, which does not answer. Steps after "
                "the newest checkpoint are lost: continue with --resume");
        }
    }
}

}  // namespace coda
