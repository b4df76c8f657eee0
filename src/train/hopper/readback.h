// Scalars copied to pinned memory after the work enqueued so far.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "kernels/core/memory.h"
#include "src/train/executor.h"

namespace coda {

/// Pinned slots and events, used again when a Readback is gone. Must outlive its Readbacks.
class ReadbackPool {
  public:
    ReadbackPool() = default;
    ~ReadbackPool();
    ReadbackPool(const ReadbackPool&) = delete;
    ReadbackPool& operator=(const ReadbackPool&) = delete;

    /// At most 8 views of one element each. Throws Error for a type that is not a number.
    std::unique_ptr<Readback> read(const std::vector<View>& views, const Memory& memory, cudaStream_t stream);

  private:
    struct Slot {
        double* values = nullptr;  // pinned, one 8-byte cell per view
        cudaEvent_t arrived{};
    };
    class Pending;

    std::vector<Slot> spare_;
};

}  // namespace coda
