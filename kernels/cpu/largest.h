// The largest magnitude of a tensor that an op rounds to FP8 on the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/f8.h"
#include "kernels/cpu/gemm_operands.h"

namespace coda::cpu {

/// The largest magnitude that each thread has seen. A NaN is none.
template <class T = float>
class LargestOfThreads {
  public:
    void add(T value) {
        T& own = largest_[static_cast<std::size_t>(omp_get_thread_num())];
        own = std::fmax(own, std::fabs(value));
    }
    T of_all() const { return *std::max_element(largest_.begin(), largest_.end()); }

  private:
    std::vector<T> largest_ = std::vector<T>(static_cast<std::size_t>(omp_get_max_threads()));
};

}  // namespace coda::cpu
