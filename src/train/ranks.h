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
    /// Whether this rank writes log, checkpoints' last words and files.
    bool leads() const { return rank() == 0; }
    Team* team() const { return team_; }

    /// What a rank says: a number, and a text that is cut after kMostText bytes.
    struct Word {
        std::int64_t number = 0;
        std::string text;
    };
    static constexpr std::size_t kMostText = 1000;

    /// What all ranks say, in their order. All must ask.
    std::vector<Word> share(const Word& mine) const;

    /// The first text that is not empty, with the name of its rank where there are several; empty without one.
    std::string first_text(const std::vector<Word>& words) const;

    /// Each rank checks what it has by check(), which may throw NonFiniteError. If any did, all throw the first one's.
    void require_finite(const std::function<void()>& check) const;

  private:
    Team* team_;
};

}  // namespace coda
