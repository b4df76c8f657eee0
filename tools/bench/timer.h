// Times of launches on the default stream.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/launch.h"

namespace coda::bench {

/// Times launches on the default stream.
class Timer {
  public:
    Timer() {
        CUDA_CHECK(cudaEventCreate(&begin_));
        CUDA_CHECK(cudaEventCreate(&end_));
    }
    ~Timer() {
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    /// Milliseconds per launch over `count` launches.
    double run(const std::vector<hopper::Launch>& launches, int count) {
        CUDA_CHECK(cudaEventRecord(begin_));
        for (int i = 0; i < count; ++i) launches[static_cast<std::size_t>(i) % launches.size()](nullptr);
        CUDA_CHECK(cudaEventRecord(end_));
        CUDA_CHECK(cudaEventSynchronize(end_));
        float milliseconds = 0;
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return milliseconds / count;
    }

  private:
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace coda::bench
