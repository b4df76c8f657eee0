// What the warps of an SM share besides data. Host and device.
#pragma once

#include <cstdint>

#include "kernels/hopper/decode/plan/arguments.h"

namespace coda::hopper::decode {

inline constexpr int kMaxStages = 13, kMaxInt4Stages = 10, kMaxPartialEntries = 8;

struct SharedState {
    // Barriers.
    std::uint64_t full[kMaxStages], empty[kMaxStages];
    std::uint64_t partials_full[kMaxPartialEntries];
    std::uint64_t attention_full, attention_empty;
    std::uint64_t consumers;                                        // of all consumer warps
    std::uint64_t lent[kConsumerWarps], delivered[kConsumerWarps];  // InputShare
    // Counters and flags.
    std::uint32_t issued;    // stages that the producer has begun to load
    std::int32_t committed;  // steps whose commit consumer 0 has seen
    // Of each epilogue warp 1 + the latest tile whose partials it has read.
    std::uint32_t partials_read[kEpilogueWarps];
    // Of each warp, which would keep them in registers that the GEMMs need: the SM's tiles of attention that it has
    // seen, and how often it has met the other consumer warps.
    std::uint32_t attention_tiles[kConsumerWarps + kEpilogueWarps], meetings[kConsumerWarps];
    std::uint32_t exchanges[kConsumerWarps];  // with the partner's warp
    float partner_squares[kConsumerWarps][kMaxBatch];
    std::uint32_t exiting;  // all warps of the SM exit at their next wait
    Arguments arguments;    // for a function that is not inlined (choose.cuh)
    // The sequences as the launch found them.
    std::int32_t start_token[kMaxBatch], start_length[kMaxBatch], start_running[kMaxBatch];
};

}  // namespace coda::hopper::decode
