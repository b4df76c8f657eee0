// The largest magnitude of a tensor that an op rounds to FP8 on the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/f8.h"
#include "kernels/cpu/gemm_operands.h"

namespace coda::cpu {

/// The largest magnitude that each thread has seen. A NaN is none.
class LargestOfThreads {
  public:
    void add(float value) {
        float& own = largest_[static_cast<std::size_t>(omp_get_thread_num())];
        own = std::fmax(own, std::fabs(value));
    }
    float of_all() const { return *std::max_element(largest_.begin(), largest_.end()); }

  private:
    std::vector<float> largest_ = std::vector<float>(static_cast<std::size_t>(omp_get_max_threads()));
};

}  // namespace coda::cpu
