// What ops share that write FP8 copies on the CPU: the transposed copy's rows, and the largest magnitude.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/float8.h"
#include "kernels/cpu/gemm_operands.h"

namespace coda::cpu {

/// The rows of a transposed copy (rows, tokens), whose tokens come in whole groups of `unit`; null where it is absent.
inline Rows<F8E4M3> transposed_copy(const char* op, const Memory& memory, const char* name, const View& view,
                                    std::int64_t rows, std::int64_t tokens, std::int64_t unit) {
    if (!view) return {};
    require(tokens % unit == 0, op, ": M is ", tokens, ", not a multiple of ", unit,
            ": the transposed copies keep their tokens in pairs of each ", unit);
    require_operand(op, name, view, rows, tokens, DType::f8e4m3, ColumnOrder::paired);
    return {memory.at<F8E4M3>(view), view.ld};
}

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
