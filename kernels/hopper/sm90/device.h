// Facts of the GPU at hand. Host.
#pragma once

#include "kernels/hopper/sm90/check.h"

namespace coda::hopper {

/// SMs of the current device.
inline int multiprocessors() {
    int device = 0, number = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, device));
    return number;
}

}  // namespace coda::hopper
