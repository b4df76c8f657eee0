// The schedules of a run, built from the configuration alone: what to execute, on which buffers, for any executor.
#pragma once

#include <string>
#include <vector>

#include "kernels/ops.h"
#include "src/core/buffers.h"
#include "src/core/memory_plan.h"
#include "src/model/parameters.h"

namespace coda {

/// The lists that a run executes. A step of the optimizer is `first`, then `further` for every other micro-batch, then
/// `update`. `sample` is the forward pass of the micro-batch's first sequence and the logits of its last row.
enum class Pass : std::uint8_t { first, further, update, evaluate, sample };
inline constexpr Pass kPasses[] = {Pass::first, Pass::further, Pass::update, Pass::evaluate, Pass::sample};
const char* name_of(Pass pass);

/// Buffers through which the host feeds and reads a run. Scalars and tables have the statistic's dtype unless said.
struct HostViews {
    // Written before each micro-batch.
    View tokens, targets;  // (1, M) i32; a negative target is ignored
    View positions;        // (1, M) i32, in the sequence, or in the document under document_mask
    View doc_start;        // (1, M) i32, only under document_mask
    View alpha;            // 1 / (valid targets of the whole optimizer step)
    // Written before each update.
    View lr, correction1, correction2;
    View step;  // i32, from 1
    // Written before each sample pass, besides the first T of tokens and positions.
    View sample_start;  // (1, T) i32, doc_start of that pass: what stands before a row's start is not seen
    // Written once.
    View rope;  // (seq_len, hd), see rope_table
    // Read back.
    View loss;        // mean over the valid targets of the optimizer step, after its last micro-batch
    View losses;      // (1, M) of every target, 0 where it is ignored, of the latest micro-batch or evaluate pass
    View val_loss;    // of one evaluate pass, with its own alpha
    View logits;      // (1, V padded) storage, of the last row of a sample pass
    View norm, clip;  // of the gradient, before clipping
    View skip;        // i32, sticky: a non-finite loss or norm was seen
    // State: flat segments of ParameterLayout.count elements.
    View master, gradient, m, v;
    View working;  // storage dtype, with the weights of norms in the matrices after them (ParameterLayout.folds)
};

struct Schedules {
    BufferTable buffers;
    HostViews host;
    Schedule first, further, update, evaluate, sample;

    const Schedule& operator[](Pass pass) const;
    std::vector<const Schedule*> all() const;  // in the order of kPasses
};

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
ScheduleOptions schedule_options(const Config& config, Precision precision);

Schedules build_schedules(const ModelConfig& model, const ParameterLayout& layout, const ScheduleOptions& options);

/// Places every buffer for all schedules and checks each for hazards in that place.
MemoryPlan plan_and_check(const Schedules& schedules);

/// cos and sin of every (position, pair): row p, columns 2i and 2i + 1, angle p theta^(-2i/hd), the frequency rescaled
/// by rope_scaling where there is one. (positions, hd) row-major.
std::vector<double> rope_table(const ModelConfig& model, std::int64_t positions);

}  // namespace coda
