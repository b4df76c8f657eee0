// The clocks at which a kernel's warpgroups reach the marks of their loops, for a picture of a step
// (tools/plot_timeline.py).
//
// Only a build with CODA_STAMPS stamps: block 0 does, and each launch's stamps are printed after it. In other builds a
// mark is no instruction.
#pragma once

#include "kernels/hopper/sm90/launch.h"

#ifdef CODA_STAMPS
#include <cstdio>

#include "kernels/hopper/sm90/limits.h"
#endif

namespace coda::hopper {

#ifdef CODA_STAMPS

inline constexpr int kStampsOfRole = 1024, kStampedRoles = 4;
struct Stamp {
    const char* mark;
    unsigned clock;
};
static __device__ Stamp stamps_of_roles[kStampedRoles][kStampsOfRole];

/// The stamps of a warpgroup, written by its first thread. kStamped: false for a kernel without registers for them.
template <bool kStamped>
struct Stamps {
    int count = 0;

    __device__ __forceinline__ void mark(const char* name) {
        if constexpr (kStamped) {
            unsigned clock;
            asm volatile("mov.u32 %0, %clock;" : "=r"(clock)::"memory");
            if (count < kStampsOfRole && threadIdx.x % kWarpgroupThreads == 0 && blockIdx.x == 0)
                stamps_of_roles[threadIdx.x / kWarpgroupThreads][count] = {name, clock};
            ++count;
        }
    }
};

static __global__ void print_all_stamps() {
    for (int role = 0; role < kStampedRoles; ++role)
        for (Stamp& stamp : stamps_of_roles[role]) {
            if (stamp.mark != nullptr) printf("stamp\t%d\t%u\t%s\n", role, stamp.clock, stamp.mark);
            stamp = {};  // the next launch may have fewer
        }
}
inline void print_stamps(Stream stream) { print_all_stamps<<<1, 1, 0, stream>>>(); }

#else

template <bool kStamped>
struct Stamps {
    __device__ __forceinline__ void mark(const char*) const {}
};
inline void print_stamps(Stream) {}

#endif

}  // namespace coda::hopper
