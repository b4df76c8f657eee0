// The other ranks, as the ops between ranks reach them.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace coda {

/// What moves bytes between the memories of the ranks of a team. Whoever makes it knows what each transfer moves
/// (src/engine/team.h).
class Peers {
  public:
    virtual ~Peers() = default;

    /// Begins a transfer behind all that `stream` has, and returns at once. All ranks start the same transfers in the
    /// same order. `stream`: of the GPU; null on a CPU, where everything before the call is done.
    virtual void start(std::int32_t transfer, CUstream_st* stream) = 0;

    /// `stream` waits until the transfer that was started is done on this rank: what it receives is there, and what it
    /// sends may be overwritten. On a CPU the caller waits.
    virtual void finish(std::int32_t transfer, CUstream_st* stream) = 0;
};

}  // namespace coda
