// The training run: from a configuration to a loss curve.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/config/command_line.h"
#include "src/core/console.h"
#include "src/io/evaluation_shard.h"
#include "src/io/loader.h"
#include "src/io/run_log.h"
#include "src/io/run_tokenizer.h"
#include "src/train/executor.h"
#include "src/train/feed.h"
#include "src/train/recent_mean.h"
#include "src/train/sampling.h"
#include "src/train/timing.h"

namespace coda {

class Trainer {
  public:
    /// Opens the data, builds and checks the schedules, and allocates. Throws before it allocates when data, memory or
    /// device do not allow the run.
    explicit Trainer(const CommandLine& command);

    /// Weights from a checkpoint (--resume), a Hugging Face folder (--init-from) or the seed.
    void prepare_weights();

    /// Trains from the step that the weights are of to training.steps. Returns the exit code.
    int train();

    /// Mean validation loss in nats per token.
    double evaluate();

    /// The result of every file of evaluation.files, in their order; name and step are filled in.
    std::vector<EvaluationRecord> evaluate_choices();

    /// Prints what --sample asks for, its prompt and the tokens that follow: as text, or without `codec` as token ids.
    void sample(TextCodec* codec);

    /// Writes the weights as a Hugging Face folder.
    void export_weights();

    /// Writes the files of --timing, if it is asked for, and prints its table.
    void write_timing();

    std::int64_t validation_tokens() const { return validation_tokens_; }

  private:
    struct StepResult {
        double loss = 0, norm = 0, lr = 0, ms = 0;
        bool skipped = false;
    };
    /// A step that is enqueued and whose results the host has not looked at.
    struct StepUnderWay {
        std::int64_t step = 0;
        double lr = 0, started = 0;          // seconds
        std::unique_ptr<Readback> readback;  // loss, norm, skip
    };

    std::filesystem::path run_directory() const { return command_.config.output.directory; }
    std::int64_t sequences_per_step() const;
    std::int64_t tokens_per_step() const;
    std::int64_t sequences_before(std::int64_t step) const;
    std::int64_t tokens_after(std::int64_t step) const;

    void open_log();
    void check_resumable(const nlohmann::json& saved);
    StepUnderWay start_step(std::int64_t step);
    StepResult result_of(StepUnderWay& step);
    void settle(StepUnderWay& step);
    void run_pass(Pass pass);
    /// Feeds and runs the micro-batches of a step, each by `run`.
    void run_micro_batches(std::int64_t step, const std::function<void(Pass)>& run);
    void upload_update_scalars(std::int64_t step, double lr);
    int check_step(std::int64_t step);
    [[noreturn]] void stop_non_finite(std::int64_t step, const StepResult& result);
    void validate(std::int64_t step);
    void write_evaluations(std::int64_t step);
    void checkpoint(std::int64_t step);
    void report(std::int64_t step, const StepResult& result);

    CommandLine command_;
    std::optional<RunTokenizer> tokenizer_;
    ParameterLayout layout_;
    Schedules schedules_;
    MemoryPlan plan_;
    std::unique_ptr<Loader> train_, val_;
    std::vector<EvaluationShard> evaluations_;
    DeviceChoice device_;
    std::unique_ptr<Executor> executor_;
    std::unique_ptr<Feed> feed_;
    std::unique_ptr<TimingRecorder> timing_;
    std::optional<RunLog> log_;
    Console console_;
    double step_flops_ = 0;
    RecentMean step_ms_;
    double settled_ = 0;                                 // when the latest step's results came, in seconds
    std::int64_t done_ = 0;                              // optimizer steps that the weights have seen
    std::int64_t done_sequences_ = 0, done_tokens_ = 0;  // what those steps have read, in whatever batches they took
    bool resumed_ = false;
    std::int64_t validation_tokens_ = 0;
};

/// Throws Error when a run would find out only at its end that a file or folder of the command cannot be written, or
/// when it would overwrite another run.
void check_outputs(const CommandLine& command);

/// The training data, shuffled if so configured, and the validation data in their order. Throws Error naming the file
/// or pattern that is not token data, or when one step takes more sequences than there are.
std::pair<std::unique_ptr<Loader>, std::unique_ptr<Loader>> open_loaders(const Config& config);

/// The files of evaluation.files. Throws Error naming one that is no evaluation shard of this vocabulary.
std::vector<EvaluationShard> open_evaluations(const Config& config);

/// "hellaswag_val: acc 0.25, acc_norm 0.26 over 10042 examples"
std::string evaluation_line(const EvaluationRecord& record);

}  // namespace coda
