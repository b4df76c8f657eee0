// Device memory of a case, filled on the device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "kernels/cases/buffers.h"
#include "kernels/core/memory.h"

namespace coda::cases {

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
/// `words` of whole units of 4-bit integers (Fill::int4).
void fill_units(std::int32_t* memory, std::int64_t words, std::uint64_t seed, cudaStream_t stream);

}  // namespace coda::cases
