// Memory of the current GPU for an arena.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/core/error.h"
#include "src/core/console.h"

namespace coda {

class DeviceArena {
  public:
    DeviceArena(const char* what, std::int64_t bytes) {
        const cudaError_t status = cudaMalloc(reinterpret_cast<void**>(&base_), static_cast<std::size_t>(bytes));
        if (status != cudaSuccess) cudaGetLastError();
        require(status == cudaSuccess, "the GPU has no ", bytes_text(static_cast<double>(bytes)), " (", bytes,
                " bytes) in one piece for ", what, ": ", cudaGetErrorString(status),
                "; another process may hold memory (see nvidia-smi)");
    }
    ~DeviceArena() { cudaFree(base_); }
    DeviceArena(const DeviceArena&) = delete;
    DeviceArena& operator=(const DeviceArena&) = delete;
    std::byte* base() const { return base_; }

  private:
    std::byte* base_ = nullptr;
};

}  // namespace coda
