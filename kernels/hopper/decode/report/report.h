// What the watchdog reports. Host and device, without CUDA.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/hopper/decode/plan/decode_plan.h"

namespace coda::hopper::decode {

/// What a thread of the kernel waited for. Of threads at the same op, the watchdog names the first in this order: what
/// comes from other SMs before what an SM's own warps hand to each other.
enum class Awaited : std::int32_t {
    arrivals,
    input,
    residual,
    splits,
    partner,
    token,
    commit,
    stage,
    partials,
    free_partials,
    free_stage,
    warps
};
const char* name_of(Awaited awaited);

/// A wait that was cut short. When one takes longer than the watchdog's limit, all waiting threads report the
/// keys of their waits, and the largest stays: the earliest op of the earliest step is where something is missing, and
/// the others wait for what comes after it.
struct LateWait {
    Awaited awaited = Awaited::input;
    std::int32_t step = 0, op = 0, tile = -1;  // tile -1: of the whole op
    std::int32_t sm = 0, warp = 0;
};

inline constexpr int kMostSteps = 1 << 16, kMostTiles = (1 << 18) - 1;

/// The earlier the larger, and not 0. Steps, ops, tiles and SMs are below kMost...
CODA_HD std::uint64_t key_of(const LateWait& wait) {
    const std::uint32_t when = static_cast<std::uint32_t>(wait.step) << 16 |
                               static_cast<std::uint32_t>(wait.op << 4 | static_cast<int>(wait.awaited));
    const std::uint32_t where =
        static_cast<std::uint32_t>(wait.tile + 1) << 14 | static_cast<std::uint32_t>(wait.sm << 4 | wait.warp);
    return ~(std::uint64_t{when} << 32 | where);
}
LateWait wait_of(std::uint64_t key);

/// One sentence.
std::string describe(const LateWait& wait, const DecodePlan& plan);

}  // namespace coda::hopper::decode
