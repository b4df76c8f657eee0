// What checks of FP8 copies share: the transposed copy read as rows, and amax. Device and host.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/core/f8.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

inline float scalar_of(const void* device) {
    float value = 0;
    CUDA_CHECK(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

/// What is stored of a value in f8e4m3, before it is rounded.
__device__ inline float finite(float value) { return fminf(fmaxf(value, -448.0f), 448.0f); }

/// A transposed copy, read as the rows from `first` on of the matrix that it was made from.
struct Untransposed {
    Tensor copy;
    std::int64_t first;
    __device__ float operator()(std::int64_t row, std::int64_t column) const {
        return copy(column, paired_place(first + row));
    }
};

/// Compares an amax with the largest magnitude that was expected, or was there before.
inline void compare_amax(OpCheck& check, const char* operand, const View& amax, double largest) {
    largest = std::max<double>(largest, scalar_of(check.captured(operand)));
    const double difference = scalar_of(check.memory().address(amax)) - largest;
    check.add(operand, {difference * difference, largest * largest, std::abs(difference), largest});
}

}  // namespace coda::oracle
