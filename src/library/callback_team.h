// A team whose bytes the caller of libcoda moves.
#pragma once

#include <exception>

#include "src/engine/team.h"
#include "src/library/coda.h"

namespace coda {

class CallbackTeam : public Team {
  public:
    /// Sets the number of OpenMP's threads where the struct has one. Throws UsageError where it is of another ABI or
    /// its numbers make no sense.
    explicit CallbackTeam(const coda_team& team);

    int rank() const override { return team_.rank; }
    int ranks() const override { return team_.ranks; }
    int device() const override { return team_.device; }
    std::byte* memory(Where where, std::int64_t bytes) override;
    void set_transfers(std::vector<Transfer> transfers) override;
    std::vector<std::byte> share(std::span<const std::byte> mine) override;
    void start(std::int32_t transfer, CUstream_st* stream) override;
    void finish(std::int32_t transfer, CUstream_st* stream) override;

    /// Tells the others why this rank stops, unless all ranks have thrown this error alike.
    void leave(const std::exception& error);

  private:
    /// Throws LostRankError with the caller's words unless `failure` is 0. On a GPU the process ends with them instead,
    /// since a clean-up would wait for a GPU that waits for the others.
    void check(int failure) const;

    coda_team team_;
    bool on_gpu_ = false;
};

}  // namespace coda
