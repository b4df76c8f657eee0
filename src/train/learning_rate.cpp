#include "src/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace coda {

double learning_rate(const OptimizerConfig& optimizer, const LrScheduleConfig& schedule, std::int64_t steps,
                     std::int64_t step) {
    const double peak = optimizer.learning_rate, floor = schedule.min_lr_ratio;
    const std::int64_t warmup = schedule.warmup_steps;
    if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);

    const bool wsd = schedule.type == LrScheduleType::wsd;
    const std::int64_t default_decay =
        wsd ? std::max<std::int64_t>(1, steps / 5) : std::max<std::int64_t>(1, steps - warmup);
    const std::int64_t decay = schedule.decay_steps.value_or(default_decay);
    const std::int64_t start = wsd ? std::max(warmup, steps - decay) : warmup;
    const double progress =
        std::clamp(static_cast<double>(step - start) / static_cast<double>(std::max<std::int64_t>(1, decay)), 0.0, 1.0);
    switch (schedule.type) {
        case LrScheduleType::constant: return peak;
        case LrScheduleType::cosine:
            return peak * (floor + (1 - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
        case LrScheduleType::linear:
        case LrScheduleType::wsd: return peak * (1 - (1 - floor) * progress);
    }
    return peak;
}

}  // namespace coda
