#include "tools/bench/read_stream.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "kernels/cases/device_buffers.h"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/ptx/stream.cuh"
#include "kernels/hopper/sm90/device.h"
#include "src/core/median.h"
#include "tools/bench/timer.h"

namespace coda::bench {

namespace {

constexpr std::int64_t kBytes = std::int64_t{4} << 30;
constexpr std::uint32_t kPiece = 16 * 1024;  // as a stage of the decode kernel
constexpr int kStages = 12, kPieces = static_cast<int>(kBytes / kPiece);
constexpr int kPasses = 16, kWarmUp = 4;

/// One thread per SM keeps kStages copies on their way. An SM takes every G-th piece.
__global__ void read_stream(const char* data) {
    extern __shared__ __align__(128) char memory[];
    __shared__ std::uint64_t full[kStages];
    namespace ptx = hopper::ptx;
    for (std::uint64_t& barrier : full) ptx::mbarrier_init(ptx::shared_address(&barrier), 1);
    ptx::fence_mbarrier_init();
    const std::uint64_t policy = ptx::evict_first_policy();
    const int grid = static_cast<int>(gridDim.x), own = (kPieces - 1 - static_cast<int>(blockIdx.x)) / grid + 1;
    const auto load = [&](int i, int stage) {
        const std::uint32_t barrier = ptx::shared_address(&full[stage]);
        ptx::mbarrier_arrive_expect(barrier, kPiece);
        ptx::bulk_stream(ptx::shared_address(memory) + static_cast<std::uint32_t>(stage) * kPiece,
                         data + (static_cast<std::int64_t>(blockIdx.x) + std::int64_t{i} * grid) * kPiece, kPiece,
                         barrier, policy);
    };
    for (int i = 0; i < kStages && i < own; ++i) load(i, i);
    int stage = 0;
    std::uint32_t parity = 0;
    for (int i = 0; i < own; ++i) {
        ptx::mbarrier_wait(ptx::shared_address(&full[stage]), parity);
        if (i + kStages < own) load(i + kStages, stage);
        if (++stage < kStages) continue;
        stage = 0;
        parity ^= 1;
    }
}

}  // namespace

double read_stream_tb_s() {
    char* data = nullptr;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data), kBytes));
    cases::fill_normal(data, kBytes / 2, 1, nullptr);
    constexpr int kShared = kStages * static_cast<int>(kPiece);
    CUDA_CHECK(cudaFuncSetAttribute(read_stream, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
    const auto grid = static_cast<unsigned>(hopper::multiprocessors());
    const std::vector<hopper::Launch> launches{[=](hopper::Stream stream) {
        read_stream<<<grid, 1, kShared, stream>>>(data);
        CUDA_CHECK(cudaGetLastError());
    }};
    Timer timer;
    timer.run(launches, kWarmUp);
    std::vector<double> milliseconds;
    for (int i = 0; i < kPasses; ++i) milliseconds.push_back(timer.run(launches, 1));
    CUDA_CHECK(cudaFree(data));
    return static_cast<double>(kBytes) / median_of(milliseconds) * 1e-9;
}

}  // namespace coda::bench
