// Vectors of ordinary shared memory by 32-bit shared::cta address.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

__device__ __forceinline__ float2 load_shared_pair(std::uint32_t address) {
    float2 value;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ void store_shared_quad(std::uint32_t address, float x, float y, float z, float w) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}

__device__ __forceinline__ int4 load_shared_integers(std::uint32_t address) {
    int4 value;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

__device__ __forceinline__ void store_shared_integers(std::uint32_t address, int4 value) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
                 "r"(value.w)
                 : "memory");
}

}  // namespace coda::hopper::ptx
