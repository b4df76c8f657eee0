// A model on its device, ready to run the passes of a mode: their schedules, memory for them, and what feeds them.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/core/console.h"
#include "src/engine/executor.h"
#include "src/engine/feed.h"
#include "src/engine/tensor_stats_file.h"
#include "src/engine/timing.h"
#include "src/engine/token_input.h"

namespace coda {

class Session {
  public:
    /// Builds and checks the schedules of `passes`, and allocates. Throws before it allocates when memory or device do
    /// not allow it. `times_ops`: passes run operation by operation, timed, where the recorder asks for it.
    /// `generation`: of Pass::decode and Pass::prefill; by default one sequence of training.seq_len. `team`: whose rank
    /// this is; null: there is one rank.
    Session(const Config& config, PassSet passes, bool times_ops, Console& console,
            const GenerationShape& generation = {}, Team* team = nullptr);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const Config& config() const { return config_; }
    Console& console() { return console_; }
    const ParameterLayout& layout() const { return layout_; }
    const Schedules& schedules() const { return schedules_; }
    const HostViews& host() const { return schedules_.host; }
    const MemoryPlan& plan() const { return plan_; }
    Executor& executor() { return *executor_; }
    TimingRecorder* timing() { return timing_.get(); }  // null without times_ops

    TensorStatsRecorder* tensors() { return tensors_.get(); }  // null without watch_tensors

    /// From now on writes the statistics of the tensors of every `every`-th training step to `file`. `command`: for its
    /// header. Throws Error when the file cannot be written.
    void watch_tensors(const std::filesystem::path& file, std::int64_t every, const std::string& command);

    /// Reads them in parts.
    void set_weights(const MasterWeights& weights);

    /// Tokens, targets, positions and document starts of a micro-batch; its weight in the loss, 0 of no valid target.
    void feed(const TokenBatch& batch) { feed_->upload(batch); }
    void set_alpha(std::int64_t valid_targets);

    void run(Pass pass);
    /// Feeds a micro-batch and runs Pass::evaluate, whose results are host().val_loss and host().losses.
    void evaluate(const TokenBatch& batch);

    /// Writes the times to `file` and a trace next to it, and prints their table. `command`: for the header.
    void write_timing(const std::filesystem::path& file, const std::string& command);

  private:
    /// What the header of a file about the run says.
    nlohmann::json description(const std::string& command) const;

    Config config_;
    Console& console_;
    ParameterLayout layout_;
    Schedules schedules_;
    MemoryPlan plan_;
    std::unique_ptr<Executor> executor_;
    std::unique_ptr<TokenInput> tokens_;
    std::unique_ptr<Feed> feed_;
    std::unique_ptr<TimingRecorder> timing_;
    std::unique_ptr<TensorStatsRecorder> tensors_;
};

}  // namespace coda
