// Small views copied to pinned memory after the work enqueued so far.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/core/memory.h"
#include "src/engine/executor.h"

namespace coda {

/// Pinned buffers and events, used again when a Readback is gone. Must outlive its Readbacks.
class ReadbackPool {
  public:
    /// `for_ranks`: of wait_for.
    explicit ReadbackPool(bool for_ranks) : for_ranks_(for_ranks) {}
    ~ReadbackPool();
    ReadbackPool(const ReadbackPool&) = delete;
    ReadbackPool& operator=(const ReadbackPool&) = delete;

    /// The elements of contiguous views, one view after the other. Throws Error for a type that is not a number.
    std::unique_ptr<Readback> read(const std::vector<View>& views, const Memory& memory, cudaStream_t stream);

  private:
    struct Buffer {
        std::byte* bytes = nullptr;  // pinned; each view begins at a multiple of 8
        std::size_t capacity = 0;
        cudaEvent_t arrived{};
    };
    class Pending;

    Buffer buffer_of(std::size_t bytes);

    bool for_ranks_;
    std::vector<Buffer> spare_;
};

}  // namespace coda
