// What the ranks of a run tell each other between steps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/core/errors.h"
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

    /// The texts of all ranks, whole, in their order. All must call.
    std::vector<std::string> share_text(const std::string& mine) const;

    /// The first text that is not empty, with the name of its rank where there are several; empty without one.
    std::string first_text(const std::vector<Message>& messages) const;

    /// Every rank does its part. If part() throws on any of them, all throw the first such rank's error: of the same
    /// exit code, and with its rank's name before the text where others have another text or none. It is an
    /// AgreedError.
    void together(const std::function<void()>& part) const;

    /// Throws an error that every rank has found alike.
    template <class Base>
    [[noreturn]] void stop(const std::string& why) const {
        if (!team_) throw Base(why);
        throw Agreed<Base>(why);
    }

  private:
    Team* team_;
};

}  // namespace coda
