// Mean of the latest values: for the ETA it follows a machine that gets slower, and forgets a slow first step.
#pragma once

#include <deque>
#include <numeric>

namespace coda {

class RecentMean {
  public:
    double add(double value) {
        values_.push_back(value);
        if (values_.size() > kWindow) values_.pop_front();
        return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
    }

  private:
    static constexpr std::size_t kWindow = 20;
    std::deque<double> values_;
};

}  // namespace coda
