// Which transfers between ranks are under way.
#pragma once

#include <set>
#include <utility>

#include "src/engine/team.h"

namespace coda {

/// A team's transfers. Several passes wait for what an update began: the first that runs finds it under way, and the
/// others continue at once. All ranks run the same passes, so they finish the same transfers in the same order.
class OpenTransfers : public Peers {
  public:
    explicit OpenTransfers(Team& team) : team_(team) {}

    void start(std::int32_t transfer, CUstream_st* stream) override {
        team_.start(transfer, stream);
        open_.insert(transfer);
    }
    void finish(std::int32_t transfer, CUstream_st* stream) override {
        if (open_.erase(transfer) > 0) team_.finish(transfer, stream);
    }
    void finish_all(CUstream_st* stream) {
        for (const std::int32_t transfer : std::exchange(open_, {})) team_.finish(transfer, stream);
    }

  private:
    Team& team_;
    std::set<std::int32_t> open_;
};

}  // namespace coda
