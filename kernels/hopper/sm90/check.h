// Errors of the CUDA runtime as exceptions. Host.
#pragma once

#include <cuda_runtime.h>

#include "kernels/core/error.h"

namespace coda::hopper {

inline void check(cudaError_t status, const char* statement) {
    require(status == cudaSuccess, statement, " failed: ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
            ")");
}

}  // namespace coda::hopper

#define CUDA_CHECK(statement) ::coda::hopper::check((statement), #statement)
