// What the ranks of a run tell each other between steps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/engine/team.h"

namespace coda {

class Ranks {
  public:
    /// Null: there is one rank.
    explicit Ranks(Team* team) : team_(team) {}

    int rank() const { return team_ ? team_->rank() : 0; }
    int count() const { return team_ ? team_->ranks() : 1; }
    /// Whether this is the first rank, which writes the log and completes checkpoints.
    bool leads() const { return rank() == 0; }

    /// A number, and a text that is cut after kMostText bytes.
    struct Message {
        std::int64_t number = 0;
        std::string text;
    };
    static constexpr std::size_t kMostText = 1000;

    /// The messages of all ranks, in their order. All must call.
    std::vector<Message> share(const Message& mine) const;

    /// The first text that is not empty, with the name of its rank where there are several; empty without one.
    std::string first_text(const std::vector<Message>& messages) const;

    /// Calls check(), which may throw NonFiniteError. If any rank's did, all throw the first such rank's.
    void require_finite(const std::function<void()>& check) const;

  private:
    Team* team_;
};

}  // namespace coda
