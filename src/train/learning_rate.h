// The learning rate of an optimizer step.
#pragma once

#include <cstdint>

#include "src/config/config.h"

namespace coda {

/// Learning rate of step `step`, counted from 1, with P = learning_rate, m = min_lr_ratio and w = warmup_steps:
///   warm-up   P step / w                                       for step <= w
///   cosine    P (m + (1 - m) (1 + cos(pi u)) / 2)              u = min(1, (step - w) / decay_steps)
///   linear    P (1 - (1 - m) u)
///   constant  P
///   wsd       P until the last decay_steps steps, which go linearly to P m at the last step of the run
/// decay_steps defaults to all steps after the warm-up (cosine, linear) or to 20% of the steps (wsd).
double learning_rate(const OptimizerConfig& optimizer, const LrScheduleConfig& schedule, std::int64_t steps,
                     std::int64_t step);

}  // namespace coda
