// What of a configuration, besides the model, the schedules depend on.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/dtype.h"
#include "src/config/config.h"

namespace coda {

/// The sequences that the passes of generation run side by side.
struct GenerationShape {
    std::int64_t batch = 0;      // sequences; 0: no generation
    std::int64_t context = 0;    // positions of each
    std::int64_t rows_each = 1;  // of a decode pass: tokens of a sequence that it takes at most
    /// Numbers of ParameterLayout::matrices that are kept as 4-bit integers (kernels/math/int4.h), ascending.
    std::vector<std::size_t> int4{};
};

/// Rows of the prefill passes, ascending: 128 2^k below the context, and the context. A prompt is padded to the
/// shortest that holds it, so that no more than half of the rows are padding (below 128 rows, where a pass takes no
/// longer for them on a GPU), a schedule and a CUDA graph serve many prompts, and the bits of a sequence depend only on
/// its own length. Throws Error if the context needs more than kPrefillPasses lengths.
std::vector<std::int64_t> prefill_lengths(std::int64_t context);

/// A rank of a team.
struct RankOf {
    int rank = 0, ranks = 1;
};

struct ScheduleOptions {
    Precision precision;
    std::int64_t seq_len = 0;
    std::int64_t micro_batch_size = 0;
    std::int64_t lm_head_chunks = 1;
    Recompute recompute = Recompute::none;
    bool document_mask = false;
    double max_grad_norm = 0;
    OptimizerConfig optimizer;
    std::uint64_t seed = 0;
    GenerationShape generation{};
    PrecisionConfig gemms{};  // of the passes that train
    RankOf rank{};
    std::int64_t micro_batches = 1;  // of a rank in a step; it matters where there are several ranks
};
ScheduleOptions schedule_options(const Config& config, const Precision& precision, RankOf rank = {});

}  // namespace coda
