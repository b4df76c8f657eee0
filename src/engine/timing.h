// Where the time of a run goes: every step of the schedules timed, summarised by step, layer and op.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/engine/executor.h"

namespace coda {

/// Times of the calls of one step of a schedule. FLOPs and bytes are of one call (kernels/cost.h).
struct StepTiming {
    std::string pass;
    Phase phase;
    int layer;
    std::string name, op;
    double flops, bytes;
    bool f8;  // a GEMM of FP8 operands, whose peak is another
    std::vector<double> ms;

    double median_ms() const;
    double total_ms() const;
};

/// Records what it observes, for the --timing dump.
///
///   FILE             {header, step: {timed_ms, sum_of_parts_ms, graph_ms}, passes: [{pass, calls, sum_of_medians_ms,
///                     total_ms}], steps, by_layer, by_op: [{..., calls, median_ms, total_ms, flops, bytes,
///                     gflops_per_s, gb_per_s, roofline_percent}]}
///   FILE's stem      + ".trace.json": the last optimizer step in Chrome's trace event format
///
/// median_ms of a group is the sum of its members' medians; rates are FLOPs and bytes over the median.
/// roofline_percent: the least time that the device's peaks allow, of the median; null where it has no agreed peaks. If
/// passes can run as graphs, every other optimizer step does, so that the step's time without timing can be compared
/// with the timed one. Both are medians over the steps of a kind, the feeding of data included; null without such
/// steps.
class TimingRecorder : public StepObserver {
  public:
    /// `graphs`: the executor can run a pass whole.
    TimingRecorder(const Schedules& schedules, const DevicePeaks& peaks, bool graphs);

    /// Begins an optimizer step: only the last timed one's events are kept for the trace.
    void begin_step(std::int64_t step);
    /// Whether the passes of this step are to be timed op by op.
    bool times_ops() const { return !graph_step_; }
    void end_step(double ms);

    bool reads_results() const override { return false; }
    void after(Pass pass, std::size_t index, double start_us, double ms) override;

    /// Writes both files; `header` is put first. Throws Error when a file cannot be written.
    void write(const std::filesystem::path& file, const nlohmann::json& header) const;

    /// The ops that took most, as lines of text.
    std::string table(std::size_t rows = 12) const;

  private:
    struct Event {
        Pass pass;
        std::size_t index;
        double start_us, ms;
    };

    nlohmann::json summary(const nlohmann::json& header) const;
    nlohmann::json trace() const;

    std::vector<std::vector<StepTiming>> passes_;  // by Pass
    DevicePeaks peaks_;
    bool graphs_, graph_step_ = false;
    std::vector<double> timed_ms_, parts_ms_, graph_ms_;  // of whole optimizer steps
    std::vector<Event> events_;
    std::int64_t step_ = 0;
};

/// FILE.json -> FILE.trace.json.
std::filesystem::path trace_file_of(const std::filesystem::path& timing_file);

}  // namespace coda
