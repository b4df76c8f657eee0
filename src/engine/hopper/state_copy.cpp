#include "src/engine/hopper/state_copy.h"

#include <sys/mman.h>

#include "kernels/core/integers.h"
#include "kernels/hopper/sm90/check.h"

namespace coda {

namespace {

constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

/// Pages that exist: pinning then has no page faults to take, and in huge pages it has fewer pages to pin.
std::byte* touched_memory(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED, "the host has no ", bytes, " bytes for a copy of weights and moments");
    madvise(memory, bytes, MADV_HUGEPAGE);
    auto* first = static_cast<std::byte*>(memory);
#pragma omp parallel for
    for (std::size_t at = 0; at < bytes; at += 4096) first[at] = std::byte{0};
    return first;
}

}  // namespace

PinnedStateCopy::PinnedStateCopy(const std::vector<View>& views, const Memory& memory, cudaStream_t stream)
    : stream_(stream) {
    for (const View& view : views) {
        const auto bytes = static_cast<std::size_t>(view.bytes());
        parts_.push_back({memory.address(view), bytes_, bytes});
        bytes_ += static_cast<std::size_t>(round_up(view.bytes(), kHugePage));
    }
    host_ = touched_memory(bytes_);
    const cudaError_t status = cudaHostRegister(host_, bytes_, cudaHostRegisterDefault);
    if (status != cudaSuccess) {
        cudaGetLastError();
        munmap(host_, bytes_);
        throw Error(text("the driver cannot pin ", bytes_, " bytes of host memory: ", cudaGetErrorString(status)));
    }
    CUDA_CHECK(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming | cudaEventBlockingSync));
}

PinnedStateCopy::~PinnedStateCopy() {
    cudaStreamSynchronize(copies_);
    cudaEventDestroy(ready_);
    cudaEventDestroy(copied_);
    cudaStreamDestroy(copies_);
    cudaHostUnregister(host_);
    munmap(host_, bytes_);
}

void PinnedStateCopy::take() {
    CUDA_CHECK(cudaEventRecord(ready_, stream_));
    CUDA_CHECK(cudaStreamWaitEvent(copies_, ready_));
    for (const Part& part : parts_) {
        CUDA_CHECK(cudaMemcpyAsync(host_ + part.begin, part.source, part.bytes, cudaMemcpyDeviceToHost, copies_));
    }
    CUDA_CHECK(cudaEventRecord(copied_, copies_));
}

void PinnedStateCopy::wait() { CUDA_CHECK(cudaEventSynchronize(copied_)); }

void PinnedStateCopy::hold_stream() { CUDA_CHECK(cudaStreamWaitEvent(stream_, copied_)); }

std::span<const std::byte> PinnedStateCopy::bytes(std::size_t index) const {
    return {host_ + parts_.at(index).begin, parts_.at(index).bytes};
}

}  // namespace coda
