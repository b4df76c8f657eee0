#include "src/engine/timing.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/cost.h"
#include "tests/catch.h"
#include "tests/io/scratch_folder.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

nlohmann::json read_json(const std::filesystem::path& path) {
    std::ifstream in(path);
    return nlohmann::json::parse(in);
}

}  // namespace

TEST_CASE("the timing dump: medians, totals, groups that add up, and the last step as a trace") {
    ModelRun run(tiny_model(), {}, kFloat32);
    const DevicePeaks peaks{.flops_per_s = 1e12, .bytes_per_s = 1e10};
    TimingRecorder recorder(run.schedules, peaks, false);
    // Step i of the first pass takes 1 + i, 2 + i and 9 + i ms: the median is 2 + i.
    const Schedule& schedule = run.schedules.first;
    double at = 0;
    for (const double base : {9.0, 1.0, 2.0}) {
        recorder.begin_step(base == 2.0 ? 3 : 1);
        for (std::size_t i = 0; i < schedule.size(); ++i) {
            const double ms = base + static_cast<double>(i);
            recorder.after(Pass::first, i, at, ms);
            at += ms * 1000;
        }
        recorder.end_step(1000 * base);
    }
    const ScratchFolder folder;
    const auto file = folder.path() / "timing.json";
    recorder.write(file, {{"device", "none"}});
    const nlohmann::json dump = read_json(file), trace = read_json(trace_file_of(file));

    CHECK(dump["header"]["device"] == "none");
    REQUIRE(dump["steps"].size() == schedule.size());  // passes that never ran are left out
    double flops = 0, sum_of_medians = 0;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const auto& step = dump["steps"][i];
        const Cost price = cost(schedule[i].op);
        CHECK(step["name"] == schedule[i].name);
        CHECK(step["layer"] == schedule[i].layer);
        CHECK(step["calls"] == 3);
        CHECK(step["median_ms"].get<double>() == Approx(2.0 + static_cast<double>(i)));
        CHECK(step["total_ms"].get<double>() == Approx(12.0 + 3 * static_cast<double>(i)));
        CHECK(step["gflops_per_s"].get<double>() == Approx(price.flops / ((2.0 + static_cast<double>(i)) * 1e6)));
        CHECK(step["gb_per_s"].get<double>() == Approx(price.bytes / ((2.0 + static_cast<double>(i)) * 1e6)));
        const double least_s = std::max(price.flops / 1e12, price.bytes / 1e10);
        CHECK(step["roofline_percent"].get<double>() ==
              Approx(100 * least_s / ((2.0 + static_cast<double>(i)) * 1e-3)));
        flops += price.flops;
        sum_of_medians += 2.0 + static_cast<double>(i);
    }
    for (const char* group : {"by_layer", "by_op"}) {
        double group_flops = 0, group_ms = 0;
        for (const auto& row : dump[group]) {
            group_flops += row["flops"].get<double>();
            group_ms += row["median_ms"].get<double>();
        }
        CHECK(group_flops == Approx(flops));
        CHECK(group_ms == Approx(sum_of_medians));
    }
    CHECK(dump["passes"][0]["sum_of_medians_ms"].get<double>() == Approx(sum_of_medians));

    CHECK(dump["step"]["timed_ms"] == 2000);
    CHECK(dump["step"]["sum_of_parts_ms"].get<double>() == Approx(sum_of_medians));
    CHECK(dump["step"]["graph_ms"].is_null());

    REQUIRE(trace["traceEvents"].size() == schedule.size());
    CHECK(trace["traceEvents"][0]["ts"] == 0);
    CHECK(trace["traceEvents"][1]["dur"].get<double>() == Approx(3000));
    CHECK(trace["otherData"]["step"] == 3);
    CHECK(recorder.table().find("LinearRmsBackward") != std::string::npos);
}

TEST_CASE("the median of an even number of times is the mean of the middle two") {
    const StepTiming timing{"first micro-batch", Phase::forward, 0, "a", "A", 0, 0, false, {4, 1, 3, 10}};
    CHECK(timing.median_ms() == Approx(3.5));
}

TEST_CASE("where passes run as graphs, every other step is timed as a whole, the first one by its operations") {
    ModelRun run(tiny_model(), {}, kFloat32);
    TimingRecorder recorder(run.schedules, {}, true);
    for (std::int64_t step = 1; step <= 5; ++step) {
        recorder.begin_step(step);
        CHECK(recorder.times_ops() == (step % 2 == 1));
        if (recorder.times_ops()) recorder.after(Pass::first, 0, 0, 7);
        recorder.end_step(static_cast<double>(10 * step));
    }
    const ScratchFolder folder;
    const auto file = folder.path() / "timing.json";
    recorder.write(file, {});
    const nlohmann::json dump = read_json(file);
    CHECK(dump["step"]["timed_ms"] == 30);  // of 10, 30, 50
    CHECK(dump["step"]["graph_ms"] == 30);  // of 20, 40
    CHECK(dump["step"]["sum_of_parts_ms"] == 7);
    CHECK(dump["steps"][0]["roofline_percent"].is_null());  // a device without agreed peaks
}
