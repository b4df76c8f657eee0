// One line on a terminal that is redrawn as the work proceeds; nothing elsewhere.
#pragma once

#include <chrono>
#include <cstdint>

namespace coda {

class Progress {
  public:
    /// `total_bytes` of input; 0 where that is not known.
    explicit Progress(std::int64_t total_bytes);
    ~Progress();  // erases the line
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// Draws at most ten times per second.
    void update(std::int64_t bytes, std::int64_t tokens);

  private:
    using Clock = std::chrono::steady_clock;
    std::int64_t total_;
    bool terminal_, drawn_ = false;
    Clock::time_point begin_ = Clock::now(), last_ = begin_;
};

}  // namespace coda
