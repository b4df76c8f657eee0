#include "src/train/step_passes.h"

#include <cmath>

namespace coda {

void StepPasses::calibrate(const StepBatches& batches) {
    if (!scales_.needs_calibration() || batches.valid == 0) return;
    scales_.calibrate([&] { run_micro_batches(batches, [&](Pass pass) { session_.executor().run(pass); }); });
}

void StepPasses::run_micro_batches(const StepBatches& batches, const std::function<void(Pass)>& run) {
    session_.set_alpha(batches.valid);
    for (std::size_t i = 0; i < batches.batches.size(); ++i) {
        session_.feed(batches.batches[i]);
        const bool last = i + 1 == batches.batches.size() && session_.schedules().has(Pass::last);
        run(last ? Pass::last : i == 0 ? Pass::first : Pass::further);
    }
}

void StepPasses::upload_update_scalars(std::int64_t step, double lr, std::int64_t counted, double drop_above) {
    constexpr double kEveryNorm = -1;
    const OptimizerConfig& optimizer = session_.config().optimizer;
    const HostViews& host = session_.host();
    const auto t = static_cast<double>(step);
    upload_scalar(session_.executor(), host.lr, lr);
    upload_scalar(session_.executor(), host.correction1, 1.0 / (1.0 - std::pow(optimizer.beta1, t)));
    upload_scalar(session_.executor(), host.correction2, 1.0 / (1.0 - std::pow(optimizer.beta2, t)));
    upload_scalar(session_.executor(), host.step, t);
    // Without a target there is no gradient, and decay by itself is no step.
    upload_scalar(session_.executor(), host.drop_above, counted > 0 ? drop_above : kEveryNorm);
}

}  // namespace coda
