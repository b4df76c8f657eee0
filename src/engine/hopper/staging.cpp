#include "src/engine/hopper/staging.h"

#include <algorithm>
#include <cstring>

#include "kernels/hopper/sm90/check.h"
#include "src/engine/hopper/wait.h"

namespace coda {

StagingRing::StagingRing(std::size_t bytes, cudaStream_t stream, bool for_ranks)
    : bytes_(bytes), stream_(stream), for_ranks_(for_ranks) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&host_), bytes));
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&device_), bytes));
    CUDA_CHECK(cudaEventCreateWithFlags(&arrived_, cudaEventDisableTiming));
}

StagingRing::~StagingRing() {
    cudaStreamSynchronize(stream_);
    for (const Entry& entry : entries_) cudaEventDestroy(entry.copied);
    for (const cudaEvent_t spare : spare_) cudaEventDestroy(spare);
    cudaEventDestroy(arrived_);
    cudaFree(device_);
    cudaFreeHost(host_);
    cudaStreamDestroy(copies_);
}

cudaEvent_t StagingRing::event() {
    cudaEvent_t result{};
    if (spare_.empty()) {
        CUDA_CHECK(cudaEventCreateWithFlags(&result, cudaEventDisableTiming));
    } else {
        result = spare_.back();
        spare_.pop_back();
    }
    return result;
}

void StagingRing::release_oldest() {
    wait_for(entries_.front().copied, for_ranks_);
    spare_.push_back(entries_.front().copied);
    entries_.pop_front();
}

std::size_t StagingRing::take(std::size_t bytes) {
    std::size_t begin = next_ + bytes <= bytes_ ? next_ : 0;
    // Entries lie in the ring in their order, so the oldest are the first in the way.
    const auto in_the_way = [&](const Entry& entry) { return begin < entry.end && entry.begin < begin + bytes; };
    while (std::any_of(entries_.begin(), entries_.end(), in_the_way)) release_oldest();
    next_ = begin + bytes;
    return begin;
}

void StagingRing::upload(void* target, const void* source, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
        const std::size_t part = std::min(bytes - done, bytes_ / 4);
        const std::size_t begin = take(part);
        std::memcpy(host_ + begin, static_cast<const std::byte*>(source) + done, part);
        CUDA_CHECK(cudaMemcpyAsync(device_ + begin, host_ + begin, part, cudaMemcpyHostToDevice, copies_));
        CUDA_CHECK(cudaEventRecord(arrived_, copies_));
        CUDA_CHECK(cudaStreamWaitEvent(stream_, arrived_));
        CUDA_CHECK(cudaMemcpyAsync(static_cast<std::byte*>(target) + done, device_ + begin, part,
                                   cudaMemcpyDeviceToDevice, stream_));
        const cudaEvent_t copied = event();
        entries_.push_back({begin, begin + part, copied});
        CUDA_CHECK(cudaEventRecord(copied, stream_));
        done += part;
    }
}

void StagingRing::download(void* target, const void* source, std::size_t bytes) {
    // Two halves in turn: one is copied out while the other fills.
    const std::size_t half = bytes_ / 2;
    while (!entries_.empty()) release_oldest();
    next_ = 0;
    const auto fill = [&](std::size_t done, cudaEvent_t filled) {
        const std::size_t part = std::min(bytes - done, half);
        CUDA_CHECK(cudaMemcpyAsync(host_ + (done / half % 2) * half, static_cast<const std::byte*>(source) + done, part,
                                   cudaMemcpyDeviceToHost, stream_));
        CUDA_CHECK(cudaEventRecord(filled, stream_));
    };
    const cudaEvent_t filled[2] = {event(), event()};
    if (bytes > 0) fill(0, filled[0]);
    for (std::size_t done = 0; done < bytes; done += half) {
        const std::size_t which = done / half % 2, part = std::min(bytes - done, half);
        if (done + half < bytes) fill(done + half, filled[1 - which]);
        wait_for(filled[which], for_ranks_);
        std::memcpy(static_cast<std::byte*>(target) + done, host_ + which * half, part);
    }
    spare_.insert(spare_.end(), filled, filled + 2);
}

}  // namespace coda
