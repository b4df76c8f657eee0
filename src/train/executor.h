// What runs a schedule: memory for its buffers and a way to execute its passes. Nothing else in training knows which.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/core/memory_plan.h"
#include "src/model/schedules.h"

namespace coda {

/// Called around the steps of a pass that is run step by step.
class StepObserver {
  public:
    virtual ~StepObserver() = default;
    /// After step `index` of the pass, whose results are in memory; it took `ms` from `start_us` of the run's clock.
    virtual void after(Pass pass, std::size_t index, double start_us, double ms) = 0;
};

class Executor {
  public:
    virtual ~Executor() = default;

    /// As the log and the console name it.
    virtual std::string device_name() const = 0;

    /// Copies view.bytes() bytes between host memory and a view, whose elements must be contiguous.
    virtual void upload(const View& view, const void* source) = 0;
    virtual void download(const View& view, void* target) = 0;

    /// The bytes of a contiguous view in host memory: in place where the executor's memory is the host's, else copied
    /// into `staging`.
    virtual std::span<const std::byte> bytes(const View& view, std::vector<std::byte>& staging) = 0;

    virtual void run(Pass pass) = 0;
    virtual void run_observed(Pass pass, StepObserver& observer) = 0;
};

/// Bytes of memory that the host can still give, for the CPU executor.
std::int64_t available_host_memory();

/// Allocates the arena on the host (zeroed) and runs passes through cpu::run. `schedules` must outlive it.
/// Throws Error when the arena exceeds the memory of the machine.
std::unique_ptr<Executor> make_cpu_executor(const Schedules& schedules, const MemoryPlan& plan);

}  // namespace coda
