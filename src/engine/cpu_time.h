// How long a run takes on a CPU at the least: a run of days is started there only by somebody who means it.
#pragma once

#include <cstdint>
#include <string>

#include "src/config/config.h"
#include "src/model/schedules.h"

namespace coda {

/// FLOPs per second of a thread in fp32. A bound rather than an expectation: about twice what this program reaches on a
/// thread of its own core, and more than that where two threads share a core.
inline constexpr double kCpuFlopsPerThread = 1e11;

/// --device auto does not take the CPU for longer than this, in seconds.
inline constexpr double kMostCpuSeconds = 24 * 3600;

/// What a CPU has to do: "400 steps", and the FLOPs of all of its operations, recomputed ones included.
struct CpuWork {
    std::string what;
    double flops = 0;
};
CpuWork training_work(const Config& config, const Schedules& schedules, std::int64_t steps);

/// A validation, without multiple-choice shards.
CpuWork validation_work(const Config& config, const Schedules& schedules);

double least_cpu_seconds(const CpuWork& work, int threads);

/// "400 steps take at least 3d04h on 2 threads, at 100 GFLOP/s each"
std::string cpu_time_text(const CpuWork& work, int threads);

}  // namespace coda
