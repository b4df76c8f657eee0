#include "src/engine/timing.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "kernels/cost.h"
#include "src/core/median.h"
#include "src/io/files.h"

namespace coda {

namespace {

nlohmann::json number_or_null(double value) { return std::isfinite(value) ? nlohmann::json(value) : nullptr; }

/// Sums over the steps of a group: a layer, or an op.
struct Group {
    std::size_t steps = 0, calls = 0;
    double median_ms = 0, total_ms = 0, flops = 0, bytes = 0, least_s = 0;

    void add(const StepTiming& step, const DevicePeaks& peaks) {
        const double flops_per_s = step.f8 ? peaks.f8_flops_per_s : peaks.flops_per_s;
        least_s += std::max(step.flops / flops_per_s, step.bytes / peaks.bytes_per_s);
        ++steps;
        calls += step.ms.size();
        median_ms += step.median_ms();
        total_ms += step.total_ms();
        flops += step.flops;
        bytes += step.bytes;
    }
    /// The least time that the peaks allow the group's ops, of its median; NaN without peaks.
    double roofline_percent() const { return 100 * least_s / (median_ms / 1000.0); }

    nlohmann::json json() const {
        const double seconds = median_ms / 1000.0;
        const double roofline = roofline_percent();
        return {{"steps", steps},
                {"calls", calls},
                {"median_ms", median_ms},
                {"total_ms", total_ms},
                {"flops", flops},
                {"bytes", bytes},
                {"gflops_per_s", seconds > 0 ? flops / seconds / 1e9 : 0.0},
                {"gb_per_s", seconds > 0 ? bytes / seconds / 1e9 : 0.0},
                {"roofline_percent", number_or_null(roofline)}};
    }
};

}  // namespace

double StepTiming::median_ms() const { return ms.empty() ? 0 : median_of(ms); }

double StepTiming::total_ms() const { return std::accumulate(ms.begin(), ms.end(), 0.0); }

TimingRecorder::TimingRecorder(const Schedules& schedules, const DevicePeaks& peaks, bool graphs)
    : peaks_(peaks), graphs_(graphs) {
    for (const Pass pass : kPasses) {
        std::vector<StepTiming>& steps = passes_.emplace_back();
        for (const Step& step : schedules[pass]) {
            const Cost price = cost(step.op);
            steps.push_back({name_of(schedules, pass),
                             step.phase,
                             step.layer,
                             step.name,
                             name_of(step.op),
                             price.flops,
                             price.bytes,
                             multiplies_f8(step.op),
                             {}});
        }
    }
}

void TimingRecorder::begin_step(std::int64_t step) {
    // The first one is timed, so that a run of one step has times.
    graph_step_ = graphs_ && (timed_ms_.size() + graph_ms_.size()) % 2 == 1;
    if (graph_step_) return;
    step_ = step;
    events_.clear();
}

void TimingRecorder::end_step(double ms) {
    (graph_step_ ? graph_ms_ : timed_ms_).push_back(ms);
    if (graph_step_) return;
    double parts = 0;
    for (const Event& event : events_) parts += event.ms;
    parts_ms_.push_back(parts);
}

void TimingRecorder::after(Pass pass, std::size_t index, double start_us, double ms) {
    passes_[static_cast<std::size_t>(pass)][index].ms.push_back(ms);
    events_.push_back({pass, index, start_us, ms});
}

nlohmann::json TimingRecorder::summary(const nlohmann::json& header) const {
    nlohmann::json passes = nlohmann::json::array(), steps = nlohmann::json::array();
    std::map<std::pair<std::string, int>, Group> layers;  // (phase, layer)
    std::map<std::pair<std::string, std::string>, Group> ops;
    for (const std::vector<StepTiming>& pass : passes_) {
        if (pass.empty() || pass.front().ms.empty()) continue;
        double sum_of_medians = 0, total = 0;
        for (const StepTiming& step : pass) {
            Group alone;
            alone.add(step, peaks_);
            nlohmann::json record = {{"pass", step.pass},
                                     {"phase", name_of(step.phase)},
                                     {"layer", step.layer},
                                     {"name", step.name},
                                     {"op", step.op}};
            record.update(alone.json());
            steps.push_back(record);
            layers[{name_of(step.phase), step.layer}].add(step, peaks_);
            ops[{name_of(step.phase), step.op}].add(step, peaks_);
            sum_of_medians += step.median_ms();
            total += step.total_ms();
        }
        passes.push_back({{"pass", pass.front().pass},
                          {"calls", pass.front().ms.size()},
                          {"sum_of_medians_ms", sum_of_medians},
                          {"total_ms", total}});
    }
    nlohmann::json by_layer = nlohmann::json::array(), by_op = nlohmann::json::array();
    for (const auto& [key, group] : layers) {
        nlohmann::json record = {{"phase", key.first}, {"layer", key.second}};
        record.update(group.json());
        by_layer.push_back(record);
    }
    for (const auto& [key, group] : ops) {
        nlohmann::json record = {{"phase", key.first}, {"op", key.second}};
        record.update(group.json());
        by_op.push_back(record);
    }
    const nlohmann::json whole = {{"timed_ms", number_or_null(median_of(timed_ms_))},
                                  {"sum_of_parts_ms", number_or_null(median_of(parts_ms_))},
                                  {"graph_ms", number_or_null(median_of(graph_ms_))}};
    return {{"header", header}, {"step", whole},        {"passes", passes},
            {"steps", steps},   {"by_layer", by_layer}, {"by_op", by_op}};
}

nlohmann::json TimingRecorder::trace() const {
    nlohmann::json events = nlohmann::json::array();
    const double origin = events_.empty() ? 0 : events_.front().start_us;
    for (const Event& event : events_) {
        const StepTiming& step = passes_[static_cast<std::size_t>(event.pass)][event.index];
        const std::string name = step.layer < 0 ? step.name : text(step.name, " ", step.layer);
        events.push_back({{"name", name},
                          {"cat", name_of(step.phase)},
                          {"ph", "X"},
                          {"ts", event.start_us - origin},
                          {"dur", event.ms * 1000},
                          {"pid", 0},
                          {"tid", 0},
                          {"args", {{"op", step.op}, {"flops", step.flops}, {"bytes", step.bytes}}}});
    }
    return {{"traceEvents", events}, {"displayTimeUnit", "ms"}, {"otherData", {{"step", step_}}}};
}

void TimingRecorder::write(const std::filesystem::path& file, const nlohmann::json& header) const {
    replace_file(file, bytes_of(summary(header).dump(1) + "\n"));
    replace_file(trace_file_of(file), bytes_of(trace().dump() + "\n"));
}

std::string TimingRecorder::table(std::size_t rows) const {
    std::map<std::pair<std::string, std::string>, Group> ops;
    double total = 0;
    for (const std::vector<StepTiming>& pass : passes_) {
        if (pass.empty() || pass.front().ms.empty()) continue;  // never ran: its FLOPs took no time
        for (const StepTiming& step : pass) {
            ops[{name_of(step.phase), step.op}].add(step, peaks_);
            total += step.total_ms();
        }
    }
    std::vector<std::pair<std::pair<std::string, std::string>, Group>> order(ops.begin(), ops.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second.total_ms > b.second.total_ms; });
    std::ostringstream out;
    out << std::left << std::setw(10) << "phase" << std::setw(26) << "op" << std::right << std::setw(8) << "calls"
        << std::setw(12) << "total ms" << std::setw(8) << "share" << std::setw(11) << "GFLOP/s" << std::setw(9)
        << "GB/s" << std::setw(8) << "roof"
        << "\n";
    out << std::fixed;
    for (std::size_t i = 0; i < std::min(rows, order.size()); ++i) {
        const auto& [key, group] = order[i];
        const double seconds = group.median_ms / 1000.0;
        out << std::left << std::setw(10) << key.first << std::setw(26) << key.second << std::right << std::setw(8)
            << group.calls << std::setw(12) << std::setprecision(1) << group.total_ms << std::setw(7)
            << std::setprecision(1) << (total > 0 ? 100 * group.total_ms / total : 0) << "%" << std::setw(11)
            << std::setprecision(1) << (seconds > 0 ? group.flops / seconds / 1e9 : 0) << std::setw(9)
            << (seconds > 0 ? group.bytes / seconds / 1e9 : 0);
        const double roofline = group.roofline_percent();
        if (std::isfinite(roofline)) {
            out << std::setw(7) << roofline << "%\n";
        } else {
            out << std::setw(8) << "-"
                << "\n";
        }
    }
    if (!timed_ms_.empty()) {
        out << std::setprecision(3) << "optimizer step: " << median_of(timed_ms_) << " ms timed, its operations "
            << median_of(parts_ms_) << " ms";
        if (!graph_ms_.empty()) out << "; as a graph " << median_of(graph_ms_) << " ms";
        out << "\n";
    }
    return out.str();
}

std::filesystem::path trace_file_of(const std::filesystem::path& timing_file) {
    std::filesystem::path trace = timing_file;
    return trace.replace_extension(".trace.json");
}

}  // namespace coda
