// Device memory of a GemmCase, filled on the device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "kernels/core/memory.h"
#include "tools/bench/gemm_cases.h"

namespace coda::bench {

/// Owns one device allocation per buffer. Contents depend on `seed`; buffers that the op writes are poisoned.
class DeviceBuffers {
  public:
    DeviceBuffers(const std::vector<Buffer>& buffers, std::uint64_t seed);
    ~DeviceBuffers();
    DeviceBuffers(const DeviceBuffers&) = delete;
    DeviceBuffers& operator=(const DeviceBuffers&) = delete;

    const Memory& memory() const { return memory_; }

  private:
    std::vector<std::byte*> addresses_;
    Memory memory_;
};

/// Fills `count` bf16 numbers on the device from N(0, 1), asynchronously on `stream`.
void fill_normal(void* memory, std::int64_t count, std::uint64_t seed, cudaStream_t stream);

/// Bytes that a view spans, gaps between its rows included.
std::int64_t span_bytes(const View& view);

}  // namespace coda::bench
