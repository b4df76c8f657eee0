// The checkpoints of a training run: taken during the next step if the host has memory for a copy, and never of weights
// that are not finite.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "src/core/console.h"
#include "src/engine/ranks.h"
#include "src/engine/session.h"
#include "src/train/checkpoint_writer.h"

namespace coda {

/// Bytes of host memory for the copy that checkpoint.background takes; 0 when the run takes none.
std::int64_t checkpoint_copy_bytes(const Config& config, const Schedules& schedules);

/// What --dry-run says of it.
std::string checkpoint_line(const Config& config, const Schedules& schedules);

class Checkpoints {
  public:
    /// Takes the memory for the copy, if the configuration wants one and the host has it; else says that saving stops
    /// the run. Before weights are loaded.
    Checkpoints(Session& session, const Ranks& ranks, Console& console);

    /// Saves what the session holds as the state after `step`. One that was under way is finished first. With a copy,
    /// returns when the copy has begun: the step that follows runs during the copy and the writing. What cannot be
    /// written is said, and kept for finish(). `log_is_safe` comes first and may throw Error: a checkpoint never stands
    /// on disk before the log of its steps. Throws NonFiniteError, and writes nothing, when a weight or moment is not
    /// finite. Several ranks save together: each writes its parts while the run waits, and the first one the rest.
    void save(std::int64_t step, const nlohmann::json& state, const std::function<void()>& log_is_safe);

    /// Says how the one under way ended, if it has.
    void look();

    /// Waits for the one under way. Throws Error when the latest one could not be written.
    void finish();

  private:
    using Outcome = CheckpointWriter::Outcome;

    void write_together(std::int64_t step, const nlohmann::json& state);
    void write_own_parts(std::int64_t step);
    void take_outcome(const Outcome& outcome);

    Session& session_;
    const Ranks& ranks_;
    Console& console_;
    StateCopy* copy_ = nullptr;  // of the executor; null: checkpoints are written from its memory while the run waits
    CheckpointWriter writer_;
    std::optional<std::string> problem_;  // of the latest one
};

}  // namespace coda
