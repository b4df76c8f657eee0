// Weights and moments copied to pinned host memory on a stream of their own, while passes that only read them run.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "kernels/core/memory.h"
#include "src/engine/executor.h"

namespace coda {

class PinnedStateCopy : public StateCopy {
  public:
    /// A copy of contiguous views, as `stream` leaves them. Pins the memory for all of them, which takes about a second
    /// for each 10 GiB. Throws Error if the memory is missing.
    PinnedStateCopy(const std::vector<View>& views, const Memory& memory, cudaStream_t stream);
    ~PinnedStateCopy() override;
    PinnedStateCopy(const PinnedStateCopy&) = delete;
    PinnedStateCopy& operator=(const PinnedStateCopy&) = delete;

    void take() override;
    void wait() override;
    std::span<const std::byte> bytes(std::size_t index) const override;

    /// What the stream is given next comes after the copy that was begun last.
    void hold_stream();

  private:
    struct Part {
        const std::byte* source;
        std::size_t begin, bytes;  // in host memory
    };

    cudaStream_t stream_, copies_{};
    cudaEvent_t ready_{}, copied_{};
    std::vector<Part> parts_;
    std::size_t bytes_ = 0;
    std::byte* host_ = nullptr;
};

}  // namespace coda
