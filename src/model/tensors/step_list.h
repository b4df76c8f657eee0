// How blocks write a schedule down: steps in order, and views that count their values.
#pragma once

#include <string>
#include <utility>

#include "kernels/ops.h"

namespace coda {

/// Appends steps that share a phase and a layer.
class StepList {
  public:
    explicit StepList(Schedule& schedule) : schedule_(schedule) {}
    void enter(Phase phase, int layer) {
        phase_ = phase;
        layer_ = layer;
    }
    void operator()(std::string name, Op op) { schedule_.push_back({phase_, layer_, std::move(name), std::move(op)}); }

  private:
    Schedule& schedule_;
    Phase phase_ = Phase::forward;
    int layer_ = -1;
};

/// The next value of a view: what an op that writes it produces, and what later readers of the variable mean.
inline const View& write(View& view) {
    ++view.version;
    return view;
}

}  // namespace coda
