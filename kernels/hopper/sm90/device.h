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

/// Peak bytes per second of the current device's memory: two transfers per clock.
inline double memory_bytes_per_s() {
    int device = 0, kilohertz = 0, bits = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device));
    CUDA_CHECK(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device));
    return 2 * 1e3 * kilohertz * bits / 8;
}

}  // namespace coda::hopper
