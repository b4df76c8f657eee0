#include "src/engine/device.h"

#include <omp.h>

#include "kernels/core/error.h"
#include "src/core/console.h"
#include "src/engine/hopper_executor.h"
#include "src/engine/plan_report.h"

namespace coda {

namespace {

void require_kernels(const Config& config, PassSet passes) {
    if (const auto problem = hopper_problem(config, passes)) {
        throw Error(text("--device cuda: ", *problem, "; --device cpu runs it"));
    }
}

}  // namespace

Precision precision_of(const Config& config, DeviceChoice device) {
    return device == DeviceChoice::cuda || config.precision.has_fp8 ? kMixedBf16 : kFloat32;
}

DeviceChoice resolve_device(const Config& config, PassSet passes) {
    if (config.device != DeviceChoice::automatic) return config.device;
    return gpu_problem() || hopper_problem(config, passes) ? DeviceChoice::cpu : DeviceChoice::cuda;
}

std::string why_not_gpu(const Config& config, PassSet passes) {
    if (config.device != DeviceChoice::automatic) return {};
    return why_not_gpu(gpu_problem(), hopper_problem(config, passes));
}

void require_device(const Config& config, DeviceChoice device, PassSet passes) {
    if (device != DeviceChoice::cuda) return;
    require_kernels(config, passes);
    if (const auto problem = gpu_problem()) {
        throw Error(text("--device cuda: ", problem->what, "; --device cpu trains on the CPU"));
    }
}

void require_patience(const Config& config, PassSet passes, const std::vector<CpuWork>& works) {
    if (config.device != DeviceChoice::automatic || resolve_device(config, passes) != DeviceChoice::cpu) return;
    const int threads = omp_get_max_threads();
    for (const CpuWork& work : works) {
        if (least_cpu_seconds(work, threads) <= kMostCpuSeconds) continue;
        const auto machine = gpu_problem();
        throw Error(text("--device auto: no GPU can do this, because ",
                         machine ? machine->what : hopper_problem(config, passes).value_or(""), ", and on the CPU ",
                         cpu_time_text(work, threads), "; --device cpu runs it there all the same"));
    }
}

std::string cpu_time_line(const CpuWork& work) {
    return text("time on the CPU     ", cpu_time_text(work, omp_get_max_threads()), "\n");
}

void require_fit_on(const Config& config, DeviceChoice device, PassSet passes, const MemoryPlan& plan, RankOf rank) {
    const Precision precision = precision_of(config, device);
    if (device == DeviceChoice::cuda) {
        return require_fit(config, precision, passes, plan, device_memory().available, "the GPU", rank);
    }
    require_fit(config, precision, passes, plan, available_host_memory(), "this machine", rank);
}

void require_generation_fit_on(DeviceChoice device, const Schedules& schedules, const MemoryPlan& plan) {
    if (device == DeviceChoice::cuda) {
        return require_generation_fit(schedules, plan, device_memory().available, "the GPU");
    }
    require_generation_fit(schedules, plan, available_host_memory(), "this machine");
}

std::string fit_line(const Config& config, DeviceChoice device, PassSet passes, const MemoryPlan& plan, RankOf rank) {
    if (device == DeviceChoice::cpu) {
        require_fit_on(config, device, passes, plan, rank);
        return text("fits                ", bytes_text(static_cast<double>(available_host_memory())),
                    " of memory are free on this machine\n");
    }
    require_kernels(config, passes);
    std::string lines =
        text("process on the GPU  about ", bytes_text(static_cast<double>(plan.arena_bytes() + kDeviceOverheadBytes)),
             ", with CUDA's context, kernels and graphs\n");
    if (const auto problem = gpu_problem()) return lines + text("not compared        ", problem->what, "\n");
    require_fit_on(config, device, passes, plan, rank);
    return lines + text("fits                ", bytes_text(static_cast<double>(device_memory().available)),
                        " are free on the GPU\n");
}

std::unique_ptr<Executor> make_executor(DeviceChoice device, const Schedules& schedules, const MemoryPlan& plan,
                                        Team* team) {
    return device == DeviceChoice::cuda ? make_hopper_executor(schedules, plan, team)
                                        : make_cpu_executor(schedules, plan, team);
}

}  // namespace coda
