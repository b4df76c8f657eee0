// What the warps of an SM share besides data. Host and device.
#pragma once

#include <cstdint>

#include "kernels/hopper/decode/plan/work.h"

namespace coda::hopper::decode {

inline constexpr int kMaxChunks = 13, kMaxPartEntries = 8;

struct KernelState {
    // Barriers.
    std::uint64_t full[kMaxChunks], empty[kMaxChunks];
    std::uint64_t part_full[kMaxPartEntries];
    std::uint64_t attention_full, attention_empty;
    std::uint64_t consumers;  // all consumer warps meet
    // Counters and flags.
    std::uint32_t issued;  // chunks that the producer has asked for
    std::int32_t closed;   // steps whose close a consumer has seen
    // Tiles whose parts an epilogue warp has read. It takes every second one, in order.
    std::uint32_t parts_read[kEpilogueWarps];
    std::uint32_t leaving;  // all are to stop
    // The sequences as the launch found them.
    std::int32_t start_token[kMaxBatch], start_length[kMaxBatch], start_running[kMaxBatch];
};

}  // namespace coda::hopper::decode
