// Uploads that overlap the running pass: host bytes go through pinned memory to the device on a stream of their own,
// and from there by a device copy, in order, to where the next pass reads them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <deque>
#include <vector>

namespace coda {

class StagingRing {
  public:
    /// `for_ranks`: of wait_for.
    StagingRing(std::size_t bytes, cudaStream_t stream, bool for_ranks);
    ~StagingRing();
    StagingRing(const StagingRing&) = delete;
    StagingRing& operator=(const StagingRing&) = delete;

    /// Copies host bytes to device memory, in the order of the stream. `source` may be changed at once. Waits only
    /// where the ring is full of copies that the stream has not come to.
    void upload(void* target, const void* source, std::size_t bytes);

    /// Copies device bytes to the host when the stream has come to this point, and waits for it.
    void download(void* target, const void* source, std::size_t bytes);

    std::size_t device_bytes() const { return bytes_; }

  private:
    struct Entry {
        std::size_t begin, end;  // in the ring
        cudaEvent_t copied;      // the stream has taken it: its bytes may be written again
    };

    std::size_t take(std::size_t bytes);
    void release_oldest();
    cudaEvent_t event();

    std::size_t bytes_, next_ = 0;
    cudaStream_t stream_, copies_{};
    bool for_ranks_;
    std::byte *host_ = nullptr, *device_ = nullptr;
    std::deque<Entry> entries_;  // oldest first
    std::vector<cudaEvent_t> spare_;
    cudaEvent_t arrived_{};
};

}  // namespace coda
