// The training run: from a configuration to a loss curve.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/core/console.h"
#include "src/engine/ranks.h"
#include "src/engine/session.h"
#include "src/engine/weights_source.h"
#include "src/io/run_lock.h"
#include "src/io/run_log.h"
#include "src/io/run_tokenizer.h"
#include "src/train/checkpoints.h"
#include "src/train/evaluator.h"
#include "src/train/f8_scales.h"
#include "src/train/recent_mean.h"
#include "src/train/resume_check.h"
#include "src/train/run_files.h"
#include "src/train/run_options.h"
#include "src/train/run_samples.h"
#include "src/train/spike_watch.h"
#include "src/train/step_passes.h"

namespace coda {

/// A training run. With RunOptions::team it is one of several ranks, which all do the same: the first one has the log
/// and the lock of the folder, and all write their parts of the checkpoints. training.grad_accumulation_steps must be a
/// multiple of their number: a step's micro-batches are N equal parts, of which rank r of N takes part r.
class Trainer {
  public:
    /// Checks the options and the run's folder, and opens the data. Throws UsageError or Error, naming key, flag or
    /// file.
    static TrainingData open(const Config& config, const RunOptions& options);

    /// Opens the data, locks the run's folder, allocates, and takes the weights from where the options say. Throws
    /// before it allocates when data, outputs, memory or device do not allow the run, or another process has it.
    Trainer(const Config& config, const RunOptions& options);

    /// The same on data that is already open.
    Trainer(const Config& config, const RunOptions& options, TrainingData data);

    /// Trains from the step that the weights are of to training.steps, with log and checkpoints in output.directory.
    /// Once. Returns the exit code. Throws NonFiniteError when a loss, a gradient norm, a validation or a weight is not
    /// finite; Error when the data or an output fails, with what is saved.
    int train();

    /// The loss of the current weights.
    ValidationLoss evaluate() { return evaluator_.validation(); }

    Session& session() { return session_; }

  private:
    struct StepResult {
        double loss = 0, norm = 0, lr = 0, ms = 0;
        std::int64_t counted = 0;
        bool skipped = false;  // of a loss or norm that is not finite
        bool dropped = false;  // by rule
        std::vector<F8Record> f8;
    };
    /// A step that is enqueued and whose results the host has not looked at.
    struct StepUnderWay {
        std::int64_t step = 0;
        std::int64_t counted = 0;            // targets of the step that are not ignored
        double lr = 0, started = 0;          // seconds
        std::unique_ptr<Readback> readback;  // loss, norm, skip
        std::unique_ptr<Readback> f8;        // of F8Scales
        std::vector<CodeCounts> f8_counts;   // where the step counts them
    };

    std::filesystem::path run_directory() const { return config_.output.directory; }
    std::int64_t micro_batches() const;  // of this rank in a step
    std::int64_t sequences_per_step() const;
    std::int64_t tokens_per_step() const;
    std::int64_t sequences_before(std::int64_t step) const;
    std::int64_t tokens_after(std::int64_t step) const;

    RunIdentity identity();
    void open_log();
    void restore_folder();
    StepBatches load_step(std::int64_t step) const;
    StepUnderWay start_step(std::int64_t step, const StepBatches& batches);
    StepResult result_of(StepUnderWay& step);
    void settle(StepUnderWay& step);
    [[noreturn]] void stop_without_data(std::int64_t step, const Error& error);
    int check_step(std::int64_t step);
    [[noreturn]] void stop_non_finite(std::int64_t step, const StepResult& result);
    void validate(std::int64_t step);
    void write_evaluations(std::int64_t step);
    void write_samples(std::int64_t step);
    void checkpoint(std::int64_t step);
    void report(std::int64_t step, const StepResult& result);
    void write_observations();

    Config config_;
    RunOptions options_;
    Ranks ranks_;
    Console console_;
    TrainingData data_;
    std::optional<RunTokenizer> tokenizer_;
    std::unique_ptr<RunLock> lock_;  // of the first rank
    Session session_;
    WeightsSource weights_;
    F8Scales scales_;
    StepPasses passes_;
    Checkpoints checkpoints_;
    RunIdentity identity_;
    Evaluator evaluator_;
    std::optional<RunSamples> samples_;  // with samples.interval
    std::optional<RunLog> log_;          // of the first rank
    bool folder_lost_ = false;           // and it was said
    std::int64_t saved_ = -1;            // the latest step that was given to checkpoints_
    bool looks_at_once_ = false;         // at a step's results, on all ranks alike, before the next step is enqueued
    double step_flops_ = 0;
    RecentMean step_ms_;
    SpikeWatch watch_;
    double settled_ = 0;  // when the latest step's results came, in seconds
};

}  // namespace coda
