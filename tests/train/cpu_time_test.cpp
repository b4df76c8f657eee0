// The least time of a run on a CPU counts every operation that runs; only an automatic choice asks for patience.
#include "src/engine/cpu_time.h"

#include <nlohmann/json.hpp>

#include "kernels/cost.h"
#include "src/engine/device.h"
#include "tests/catch.h"

using namespace coda;

namespace {

Config config_of(std::int64_t width, std::int64_t steps, std::int64_t accumulation = 1) {
    return parse_config(
        {{"model",
          {{"hidden_size", width},
           {"intermediate_size", 4 * width},
           {"num_hidden_layers", 2},
           {"num_attention_heads", width / 32},
           {"vocab_size", 256}}},
         {"data", {{"train", "text.txt"}}},
         {"training",
          {{"seq_len", 64}, {"micro_batch_size", 2}, {"steps", steps}, {"grad_accumulation_steps", accumulation}}},
         {"validation", {{"batches", 5}}}},
        "test");
}

Schedules schedules_of(const Config& config) {
    return build_schedules(config.model, parameter_layout(config.model), schedule_options(config, kFloat32));
}

double flops_of(const Schedule& schedule) {
    double flops = 0;
    for (const Step& step : schedule) flops += cost(step.op).flops;
    return flops;
}

std::string refusal(const Config& config, const CpuWork& work) {
    try {
        require_patience(config, passes_of(Mode::train), {work});
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

}  // namespace

TEST_CASE("the work of a run is the FLOPs of all of its operations") {
    const Config config = config_of(64, 7, 3);
    const Schedules schedules = schedules_of(config);
    const double step = flops_of(schedules.first) + 2 * flops_of(schedules.further) + flops_of(schedules.update);
    const CpuWork training = training_work(config, schedules, 4);
    CHECK(training.what == "4 steps");
    CHECK(training.flops == Approx(4 * step).epsilon(1e-12));
    CHECK(validation_work(config, schedules).flops == Approx(5 * flops_of(schedules.evaluate)).epsilon(1e-12));

    CHECK(least_cpu_seconds({"4 steps", 6e11}, 3) == Approx(2.0));
    CHECK(cpu_time_text({"4 steps", 1e11 * 3600 * 2}, 2) ==
          "4 steps take at least 1h00m on 2 threads, at 100 GFLOP/s each");
}

TEST_CASE("more than a day on the CPU is refused where nobody has asked for the CPU") {
    Config config = config_of(96, 1);  // heads of 32: for no GPU
    const CpuWork day{"9 steps", 0.99 * kMostCpuSeconds * kCpuFlopsPerThread}, months{"9 steps", 1e25};
    CHECK(refusal(config, day).empty());
    const std::string message = refusal(config, months);
    CHECK_THAT(message, Catch::StartsWith("--device auto: no GPU can do this, because "));
    CHECK_THAT(message, Catch::Contains(", and on the CPU 9 steps take at least ") && Catch::Contains("d") &&
                            Catch::Contains("; --device cpu runs it there all the same"));
    config.device = DeviceChoice::cpu;
    CHECK(refusal(config, months).empty());
}
