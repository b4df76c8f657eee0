// How the ranks of a training run reach each other. A rank is a process with its own GPU, or a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/peers.h"
#include "kernels/ops/exchange/op.h"
#include "src/core/errors.h"
#include "src/core/memory_plan.h"
#include "src/model/schedules.h"

namespace coda {

/// What an exchange moves. Places are bytes from the beginning of Team::memory, equal on all ranks. A part has `bytes`.
///   scatter: part r at source + r bytes goes to rank r, which puts what rank s sent at target + s bytes.
///   gather:  a rank's own part lies at target + rank bytes, and all parts are wanted from target on.
struct Transfer {
    StartExchange::How how = StartExchange::How::scatter;
    std::int64_t source = 0, target = 0, bytes = 0;
};

/// Where the memory lies that ranks share.
enum class Where { host, gpu };

/// All ranks make the same calls in the same order, with the same sizes. Every call throws LostRankError where another
/// rank is gone, naming it.
class Team : public Peers {
  public:
    virtual int rank() const = 0;
    virtual int ranks() const = 0;
    /// The GPU that a run on GPUs takes, of those that the process sees.
    virtual int device() const = 0;

    /// Takes the memory that other ranks reach, aligned to kBufferAlignment and zeroed; on the current GPU, if on one.
    /// Once.
    virtual std::byte* memory(Where where, std::int64_t bytes) = 0;

    /// What start() and finish() are asked for, by number. Once.
    virtual void set_transfers(std::vector<Transfer> transfers) = 0;

    /// Every rank's bytes in the order of the ranks, in the host's memory.
    virtual std::vector<std::byte> share(std::span<const std::byte> mine) = 0;
};

/// The exchanges of the schedules, by their numbers.
std::vector<Transfer> transfers_of(const Schedules& schedules, const MemoryPlan& plan);

}  // namespace coda
