// Ordinary shared-memory access by 32-bit shared::cta address, the fence that orders it with TMA, and loads from global
// memory that the compiler does not move.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ std::uint32_t load_shared(std::uint32_t address) {
    std::uint32_t value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ void store_shared(std::uint32_t address, std::uint32_t value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/// The lower half of a word.
__device__ __forceinline__ void store_shared_half(std::uint32_t address, std::uint32_t value) {
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(static_cast<std::uint16_t>(value)) : "memory");
}

/// Two floats of global memory, loaded where the call stands: a load through the read-only path would be moved up as
/// far as it can go, over barriers too, and hold registers all the way.
__device__ __forceinline__ float2 load_ordered(const float* address) {
    float2 value;
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(address) : "memory");
    return value;
}

/// Likewise one word.
__device__ __forceinline__ std::uint32_t load_ordered_word(const void* address) {
    std::uint32_t value;
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

/// The same where index < count; elsewhere `value` stays.
__device__ __forceinline__ void load_ordered_below(float2& value, const float* address, int index, int count) {
    asm volatile(
        "{\n.reg .pred inside;\nsetp.lt.s32 inside, %3, %4;\n"
        "@inside ld.global.v2.f32 {%0, %1}, [%2];\n}"
        : "+f"(value.x), "+f"(value.y)
        : "l"(address), "r"(index), "r"(count)
        : "memory");
}

/// The same for word number `index` behind `address`, where `wanted`. The address of the word is made here too, so that
/// it takes no registers before.
__device__ __forceinline__ void load_ordered_if(bool wanted, std::uint32_t& value, const void* address, int index) {
    asm volatile(
        "{\n.reg .pred wanted;\n.reg .b64 at;\nsetp.ne.u32 wanted, %1, 0;\n"
        "mad.wide.s32 at, %3, 4, %2;\n@wanted ld.global.b32 %0, [at];\n}"
        : "+r"(value)
        : "r"(static_cast<std::uint32_t>(wanted)), "l"(address), "r"(index)
        : "memory");
}

/// Eight bytes at a multiple of eight.
__device__ __forceinline__ uint2 load_shared_words(std::uint32_t address) {
    uint2 value;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ void store_shared_words(std::uint32_t address, uint2 value) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(value.x), "r"(value.y) : "memory");
}

/// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8, and holds in register i
/// the elements (row l / 4, columns 2 (l % 4) and + 1) of matrix i.
__device__ __forceinline__ void store_matrix_x4(std::uint32_t address, const std::uint32_t (&value)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value[0]),
                 "r"(value[1]), "r"(value[2]), "r"(value[3])
                 : "memory");
}

/// The same, each matrix transposed: lane l gives the address of column l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrix_x4_transposed(std::uint32_t address, const std::uint32_t (&value)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value[0]),
                 "r"(value[1]), "r"(value[2]), "r"(value[3])
                 : "memory");
}

/// The inverse of store_matrix_x4: loads the four matrices from shared memory.
__device__ __forceinline__ void load_matrix_x4(std::uint32_t address, std::uint32_t (&value)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
                 : "r"(address)
                 : "memory");
}

/// The same where `wanted`, which is equal in all lanes; otherwise `value` stays.
__device__ __forceinline__ void load_matrix_x4_if(bool wanted, std::uint32_t address, std::uint32_t (&value)[4]) {
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %5, 0;\n"
        "@wanted ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n}"
        : "+r"(value[0]), "+r"(value[1]), "+r"(value[2]), "+r"(value[3])
        : "r"(address), "r"(static_cast<int>(wanted))
        : "memory");
}

/// The inverse of store_matrix_x4_transposed.
__device__ __forceinline__ void load_matrix_x4_transposed(std::uint32_t address, std::uint32_t (&value)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
                 : "r"(address)
                 : "memory");
}

/// Orders this thread's ordinary shared-memory accesses before later ones of TMA (after a barrier).
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace coda::hopper::ptx
