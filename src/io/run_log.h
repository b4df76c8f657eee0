// The run log: JSON Lines. A header record, then one record per training step, one per validation, one per file of a
// multiple-choice evaluation, and one per sample.
//
//   {"config": {...}, "device": "...", "build": "...", "command": "...", "started": "2026-05-04T12:00:00Z",
//    "tokenizer": {"file": "...", "sha256": "..."}}
//   {"step": 1, "loss": 4.85203028, "grad_norm": ..., "lr": ..., "tokens": ..., "ms": ..., "tokens_per_s": ...,
//    "mfu": ..., "memory_gib": ..., "loss_z": null, "norm_z": null}
//   {"step": 57, ..., "loss_z": 1.25, "norm_z": 9.5, "skipped": "spike"}
//   {"step": 58, ..., "norm_z": 0.5, "f8": {"down.input": [3, 5.25, 0.0469], ...}}       [layer, amax, range], of FP8
//   {"step": 100, ..., "f8": {"down.input": [3, 5.25, 0.0469, 0, 1.5e-06], ...}}          and [saturated, zeros]
//   {"step": 58, ..., "f8": {..., "head.weight": [null, 0.25, 0.5]}}                     null: of no layer
//   {"step": 100, "val_loss": ...}
//   {"step": 100, "evaluation": "hellaswag_val", "acc": ..., "acc_norm": ..., "examples": 10042}
//   {"step": 100, "sample": "text", "prompt": "text", "tokens": [17, 4, ...]}   what the model wrote after the prompt
//   {"step": 100, "start": {what a header has}}                        the run continued from step 100, started so
//
// Numbers have 9 significant digits, which restore every float exactly; a number that is not finite is null. Each
// record is one write(2) of one line, so a killed run leaves at most one torn line, the last. Lines that cannot be
// written, on a full disk, are held back and written with the next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/io/files.h"
#include "src/io/log_records.h"

namespace coda {

struct RunHeader {
    nlohmann::json config;
    std::string device;          // name of the device that runs the op lists
    std::string build;           // build id
    nlohmann::json command;      // argv
    nlohmann::json tokenizer{};  // RunTokenizer::record; null without one, and then absent from the log
};

/// 9 significant digits as JSON: "0.1", "1e-05", "null" when not finite.
std::string json_number(double value);

class RunLog {
  public:
    /// Is given a sentence for a person: lines are held back, or could be written again.
    using Notice = std::function<void(const std::string&)>;

    /// A new log with only the header; replaces a log that `path` held.
    static RunLog create(const std::filesystem::path& path, const RunHeader& header, Notice notice = {});

    /// The log of a run that continues from the checkpoint of `step`: what repair_run_log leaves of it. Without a file
    /// or a header in it, `header` comes first.
    static RunLog resume(const std::filesystem::path& path, std::int64_t step, const RunHeader& header,
                         Notice notice = {});

    /// Log a validation, evaluation or sample at a checkpoint's step before the checkpoint is written, or a kill
    /// between the two loses it.
    void write(const StepRecord& record);
    void write_validation(std::int64_t step, double val_loss);
    void write_evaluation(const EvaluationRecord& record);
    void write_sample(const SampleRecord& record);
    /// Writes that the run continued from `step`, and how it was started.
    void write_start(std::int64_t step, const RunHeader& header);

    /// Makes what was logged survive a power failure; call it before a checkpoint is written. Throws Error when lines
    /// are held back that still cannot be written.
    void sync();

    /// Whether the path still leads to this log: false after it, or its folder, was deleted or moved.
    bool is_at_path() const { return file_.is_at_path(); }
    /// Writes everything that it holds to a new file at its path. Throws Error when that cannot be done; the log is
    /// then as it was.
    void write_anew();

  private:
    RunLog(const std::filesystem::path& path, Notice notice);
    void write_line(const std::string& line);
    /// `held_back`: lines of before are among those that are written, which is said.
    void flush(bool held_back);

    Notice notice_;
    FileWriter file_;
    std::int64_t bytes_ = 0;
    std::string held_back_;
};

/// Prepares the log in `path` for a run that continues after `step`: keeps the header and the records of steps up to
/// it, in their order. The rest of a torn last line goes. Lines that are neither header nor record go too, but then a
/// copy of the old file stays next to it as "<path>.damaged-1" (or the first such name that is free), and `notice` says
/// so. Replaces the file atomically. Returns whether a header is left; without one the file holds only the records.
bool repair_run_log(const std::filesystem::path& path, std::int64_t step, const RunLog::Notice& notice);

}  // namespace coda
