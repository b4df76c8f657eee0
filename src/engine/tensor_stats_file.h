// --tensor-stats: the file that the statistics of a run's tensors go to, and which steps they are of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/engine/tensor_stats.h"
#include "src/io/files.h"

namespace coda {

/// JSON Lines: a header, then per watched step one line per layer and tensor.
///
///   {"header": {...}}
///   {"step": 1, "layer": 0, "tensor": "qkv.input", "amax": ..., "rms": ..., "zeros": ..., "row_peak": ...}
///
/// zeros is a share. Numbers have 9 significant digits; one that is not finite is null. Lines go to FILE.new, which
/// gets its name when it is finished, at the latest when the object goes: what was seen before a run failed is there.
/// Lines that cannot be written, on a full disk, are held back and written with the next ones.
class TensorStatsFile {
  public:
    using Notice = std::function<void(const std::string&)>;

    TensorStatsFile(std::filesystem::path file, const nlohmann::json& header, Notice notice);
    ~TensorStatsFile();
    TensorStatsFile(const TensorStatsFile&) = delete;
    TensorStatsFile& operator=(const TensorStatsFile&) = delete;

    void write(std::int64_t step, const std::vector<TensorRecord>& records);
    /// Throws Error where it cannot be done.
    void finish();

  private:
    void flush();

    std::filesystem::path path_;
    Notice notice_;
    std::optional<FileWriter> file_;  // until it is finished
    std::int64_t bytes_ = 0;
    std::string held_back_;
    bool failing_ = false;
};

/// Watches the micro-batches of the steps 1, 1 + every, 1 + 2 every, ... of a run.
class TensorStatsRecorder {
  public:
    TensorStatsRecorder(Executor& executor, const Schedules& schedules, std::int64_t every,
                        std::unique_ptr<TensorStatsFile> file)
        : watch_(executor, schedules), every_(every), file_(std::move(file)) {}

    void begin_step(std::int64_t step) { step_ = (step - 1) % every_ == 0 ? std::optional(step) : std::nullopt; }
    /// Whether the passes are to be run with watch() as their observer.
    bool watching() const { return step_.has_value(); }
    TensorWatch& watch() { return watch_; }
    /// After the last micro-batch of the step.
    void end_step();
    /// Gives the file its name. Throws Error where it cannot be done.
    void finish() { file_->finish(); }

  private:
    TensorWatch watch_;
    std::int64_t every_;
    std::unique_ptr<TensorStatsFile> file_;
    std::optional<std::int64_t> step_;
};

}  // namespace coda
