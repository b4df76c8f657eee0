// Spikes of loss and gradient norm: how far a step lies above the steps before it.
//
// What is usual at step t are the median and the spread of the latest kWindow steps up to t - 2: of the loss, and of
// the logarithm of the gradient norm. The spread is the median distance from the median, scaled to a standard deviation
// of normal numbers. Spikes themselves move neither. A level that lasts becomes the usual one after half a window, so
// no run drops updates for ever.
//
// NOTE: step t - 1 is left out because the GPU's step t is enqueued before the results of t - 1 are there. The rule is
// the same on the CPU, and the same after a resume.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace coda {

/// z = (value - median) / spread of a step's loss and of the logarithm of its gradient norm. NaN without a verdict so
/// far, or without such a value.
struct SpikeScores {
    double loss = std::numeric_limits<double>::quiet_NaN();
    double norm = std::numeric_limits<double>::quiet_NaN();
    double usual_loss = 0, usual_norm = 0;  // medians; 0 without a verdict

    bool spike() const;
};

class SpikeWatch {
  public:
    static constexpr std::size_t kWindow = 128;  // steps that say what is usual
    static constexpr std::size_t kWarmUp = 32;   // of them before there is a verdict
    static constexpr double kSpike = 6;          // a z beyond it is a spike
    /// The least spread, for runs whose steps hardly differ: nats, and a part of the norm.
    static constexpr double kLeastLoss = 1e-3, kLeastNorm = 1e-2;

    /// `skip_spikes`: the z beyond which an update is dropped; 0: none is.
    explicit SpikeWatch(double skip_spikes = 0) : skip_spikes_(skip_spikes) {}

    /// The gradient norm above which the update of `step` is dropped; infinity: none. Needs the steps up to step - 2 to
    /// have been observed, and does not depend on whether step - 1 was.
    double drop_above(std::int64_t step) const;

    /// Scores a step and keeps its results. In the order of the steps, not necessarily all of them. A loss that is not
    /// finite, or a norm that is not positive and finite, is neither scored nor kept.
    SpikeScores observe(std::int64_t step, double loss, double norm);

    /// What a checkpoint keeps, exactly: {"steps", "loss", "grad_norm"}, each a string of numbers.
    nlohmann::json state() const;
    /// Null, from a checkpoint without it, begins again. Throws Error when it is anything else.
    void restore(const nlohmann::json& state);

  private:
    struct Observed {
        std::int64_t step = 0;
        double loss = 0, norm = 0;
    };
    struct Usual {
        double median = 0, spread = 0;

        double score(double value) const { return (value - median) / spread; }
    };
    static Usual usual_of(std::vector<double> values, double least);
    /// value(entry) of the entries that count for `step`; empty before the end of the warm-up.
    template <class Value>
    std::vector<double> before(std::int64_t step, const Value& value) const;

    double skip_spikes_;
    std::deque<Observed> observed_;  // the window and the step after it
};

/// "spike at step 57: gradient norm 12.3, z 9.1, median 1.21; loss 4.56, z 1.2, median 4.5; the update was dropped"
std::string spike_line(std::int64_t step, double loss, double norm, const SpikeScores& scores, bool dropped);

}  // namespace coda
