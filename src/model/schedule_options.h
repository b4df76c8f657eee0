// What of a configuration, besides the model, the schedules depend on.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"
#include "src/config/config.h"

namespace coda {

struct ScheduleOptions {
    Precision precision;
    std::int64_t seq_len = 0;
    std::int64_t micro_batch_size = 0;
    std::int64_t lm_head_chunks = 1;
    Recompute recompute = Recompute::none;
    bool document_mask = false;
    bool deterministic = true;  // of ops that have a choice: AttentionBackward
    double max_grad_norm = 0;
    OptimizerConfig optimizer;
    std::uint64_t seed = 0;
};
ScheduleOptions schedule_options(const Config& config, const Precision& precision);

}  // namespace coda
