// Where the time of a run goes: every step of the schedules timed, summarised by step, layer and op.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/train/executor.h"

namespace coda {

/// Times of the calls of one step of a schedule. FLOPs and bytes are those of one call (kernels/cost.h).
struct StepTiming {
    Pass pass;
    Phase phase;
    int layer;
    std::string name, op;
    double flops, bytes;
    std::vector<double> ms;

    double median_ms() const;
    double total_ms() const;
};

/// Records what it observes, for the --timing dump.
///
///   FILE             {header, passes: [{pass, calls, median_ms, sum_of_medians_ms}],
///                     steps, by_layer, by_op: [{..., calls, median_ms, total_ms, flops, bytes, gflops_per_s,
///                     gb_per_s}]}
///   FILE's stem      + ".trace.json": the last optimizer step in Chrome's trace event format
///
/// median_ms of a group is the sum of its members' medians; rates are FLOPs and bytes over the median.
class TimingRecorder : public StepObserver {
  public:
    explicit TimingRecorder(const Schedules& schedules);

    /// Begins an optimizer step: only the last one's events are kept for the trace.
    void begin_step(std::int64_t step);
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
    std::vector<Event> events_;
    std::int64_t step_ = 0;
};

/// FILE.json -> FILE.trace.json.
std::filesystem::path trace_file_of(const std::filesystem::path& timing_file);

}  // namespace coda
