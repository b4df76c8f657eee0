#include "src/engine/cpu_time.h"

#include "kernels/core/error.h"
#include "kernels/cost.h"
#include "src/core/console.h"

namespace coda {

namespace {

double flops_of(const Schedule& schedule) {
    double flops = 0;
    for (const Step& step : schedule) flops += cost(step.op).flops;
    return flops;
}

}  // namespace

CpuWork training_work(const Config& config, const Schedules& schedules, std::int64_t steps) {
    const auto further = static_cast<double>(config.training.grad_accumulation_steps - 1);
    const double step = flops_of(schedules.first) + further * flops_of(schedules.further) + flops_of(schedules.update);
    return {text(steps, " steps"), static_cast<double>(steps) * step};
}

CpuWork validation_work(const Config& config, const Schedules& schedules) {
    const std::int64_t batches = config.validation.batches;
    return {text(batches, " validation batches"), static_cast<double>(batches) * flops_of(schedules.evaluate)};
}

double least_cpu_seconds(const CpuWork& work, int threads) { return work.flops / (kCpuFlopsPerThread * threads); }

std::string cpu_time_text(const CpuWork& work, int threads) {
    return text(work.what, " take at least ", duration_text(least_cpu_seconds(work, threads)), " on ", threads,
                threads == 1 ? " thread" : " threads", ", at ", kCpuFlopsPerThread / 1e9, " GFLOP/s each");
}

}  // namespace coda
