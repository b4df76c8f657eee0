// Where the weights of a run come from: its newest checkpoint, a Hugging Face folder, or the seed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "src/core/console.h"
#include "src/engine/session.h"
#include "src/io/checkpoint.h"
#include "src/io/run_tokenizer.h"

namespace coda {

struct WeightsRequest {
    bool resume = false;                               // the newest checkpoint of output.directory
    std::optional<std::filesystem::path> init_from{};  // a Hugging Face folder; default: of training.seed
    std::FILE* err = stderr;                           // what was passed over
};

class WeightsSource {
  public:
    /// Finds the newest complete checkpoint for request.resume; without one, training starts from the beginning.
    /// Throws UsageError naming a key that the checkpoint has otherwise and that its weights depend on, or when it is
    /// of another tokenizer; Error when there is no checkpoint and nothing is to be trained.
    WeightsSource(const Config& config, const WeightsRequest& request, bool trains,
                  const std::optional<RunTokenizer>& tokenizer, Console& console);

    /// Weights, and moments where the session's plan has them.
    void load(Session& session) const;

    /// Only the master weights, to be read in parts; without a device. `layout` must outlive them.
    std::unique_ptr<MasterWeights> open(const ParameterLayout& layout) const;

    /// The numbers of the layout's matrices that a plan may keep as 4-bit integers.
    std::vector<std::size_t> int4_matrices(const ParameterLayout& layout) const;

    bool resumed() const { return checkpoint_.has_value(); }
    std::int64_t step() const { return checkpoint_ ? checkpoint_->step : 0; }  // optimizer steps of the weights

    /// What those steps have read, in whatever batches they took. With another training.seq_len it is the number of
    /// sequences of the new length that hold as many tokens.
    std::int64_t sequences() const;
    std::int64_t tokens() const { return counted("tokens"); }

    /// What the trainer passed when the checkpoint was written; null without one.
    const nlohmann::json* saved_state() const { return checkpoint_ ? &checkpoint_->state : nullptr; }

    /// Null without one.
    const CheckpointInfo* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }

    /// The checkpoint is read and may be deleted.
    void release() {
        if (checkpoint_) checkpoint_->in_use.reset();
    }

    /// What the checkpoint's state has under `key`; null without a checkpoint, or where it has no such key.
    nlohmann::json saved(const char* key) const;

  private:
    std::int64_t counted(const char* what) const;
    void say(const std::string& more = "") const;

    const Config& config_;
    Console& console_;
    std::optional<std::filesystem::path> init_from_;
    std::optional<CheckpointInfo> checkpoint_;
};

}  // namespace coda
