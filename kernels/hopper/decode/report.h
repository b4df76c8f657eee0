// What the watchdog reports. Host and device, without CUDA.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/hopper/decode/program.h"

namespace coda::hopper::decode {

/// What a thread of the kernel waited for.
enum class Awaited : std::int32_t {
    chunk,
    free_chunk,
    input,
    parts,
    free_parts,
    residual,
    splits,
    close,
    token,
    warps
};
const char* name_of(Awaited awaited);

/// The first wait that took longer than the watchdog's limit.
struct WatchdogReport {
    std::int32_t set = 0;
    Awaited awaited = Awaited::chunk;
    std::int32_t token = 0, stage = 0, tile = 0;  // tile -1: of the whole stage
    std::uint32_t epoch = 0;
    std::int32_t sm = 0, warp = 0;
};
/// One sentence.
std::string describe(const WatchdogReport& report, const DecodeProgram& program);

}  // namespace coda::hopper::decode
