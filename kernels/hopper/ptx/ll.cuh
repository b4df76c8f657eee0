// LL words, of 8 bytes in global memory, through which running CTAs hand each other data. An access of 8 aligned bytes
// is one access: whoever sees half of a word's new value sees all of it. Relaxed: other memory is not ordered with
// them. And numbers of 4 bytes, each of which says by its value whether it is there, or how far a warp has come.
#pragma once

#include <cstdint>

namespace coda::hopper::ptx {

struct LlPair {
    std::uint64_t first, second;
};

/// Two words at a multiple of 16 bytes; unchanged where not `wanted`. Predicated, as branches would keep loads that
/// follow one another apart.
__device__ __forceinline__ void load_ll_pair(LlPair& words, const std::uint64_t* address, bool wanted) {
    asm volatile(
        "{\n"
        ".reg .pred wanted;\n"
        "setp.ne.s32 wanted, %3, 0;\n"
        "@wanted ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];\n"
        "}"
        : "+l"(words.first), "+l"(words.second)
        : "l"(address), "r"(static_cast<int>(wanted))
        : "memory");
}

__device__ __forceinline__ std::uint64_t load_ll(const std::uint64_t* address) {
    std::uint64_t word;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    return word;
}

__device__ __forceinline__ void store_ll(std::uint64_t* address, std::uint64_t word) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
}

/// Two words at a multiple of 16 bytes, each one access.
__device__ __forceinline__ void store_ll_pair(std::uint64_t* address, const LlPair& words) {
    asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(address), "l"(words.first), "l"(words.second)
                 : "memory");
}

/// Four numbers at a multiple of 16 bytes, each one access; unchanged where not `wanted`. Predicated as well.
__device__ __forceinline__ void load_numbers(uint4& numbers, const void* address, bool wanted) {
    asm volatile(
        "{\n"
        ".reg .pred wanted;\n"
        "setp.ne.s32 wanted, %5, 0;\n"
        "@wanted ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "+r"(numbers.x), "+r"(numbers.y), "+r"(numbers.z), "+r"(numbers.w)
        : "l"(address), "r"(static_cast<int>(wanted))
        : "memory");
}
__device__ __forceinline__ void store_number(void* address, std::uint32_t number) {
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(address), "r"(number) : "memory");
}
/// Two at a multiple of 8 bytes, each one access.
__device__ __forceinline__ void store_numbers(void* address, uint2 numbers) {
    asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(numbers.x), "r"(numbers.y)
                 : "memory");
}

/// Two numbers at a multiple of 8 bytes, each one access. fence_gpu() orders what follows: loads that acquire would
/// wait for one another.
__device__ __forceinline__ uint2 load_numbers(const std::uint32_t* address) {
    uint2 numbers;
    asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];"
                 : "=r"(numbers.x), "=r"(numbers.y)
                 : "l"(address)
                 : "memory");
    return numbers;
}

/// Orders this thread's accesses before the fence with those after it, as other CTAs see them.
__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

/// Nanoseconds.
__device__ __forceinline__ std::uint64_t global_time() {
    std::uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

/// Ends this thread.
__device__ __forceinline__ void exit_thread() { asm volatile("exit;"); }

}  // namespace coda::hopper::ptx
