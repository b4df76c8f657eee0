// What runs a schedule: memory for its buffers and a way to execute its passes. Nothing else in training knows which.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/memory.h"
#include "kernels/core/row_stats.h"
#include "src/core/memory_plan.h"
#include "src/engine/code_counts.h"
#include "src/engine/decode_launches.h"
#include "src/engine/team.h"
#include "src/model/schedules.h"

namespace coda {

/// Called around the steps of a pass that is run step by step.
class StepObserver {
  public:
    virtual ~StepObserver() = default;
    /// Whether after() looks at results: then every step is waited for before the next one starts.
    virtual bool reads_results() const = 0;
    /// After step `index` of the pass; it took `ms` from `start_us` of the run's clock.
    virtual void after(Pass pass, std::size_t index, double start_us, double ms) = 0;
};

/// Values on their way from the executor's memory to the host.
class Readback {
  public:
    virtual ~Readback() = default;
    /// Waits for them. As often as wanted.
    virtual std::vector<double> wait() = 0;
};

/// A copy of views in host memory. Passes that do not change the views can run while it is made.
class StateCopy {
  public:
    virtual ~StateCopy() = default;
    /// Begins to copy the values after everything enqueued so far. The next update waits until they are copied; no
    /// other pass does. The copy before must not be in use any more.
    virtual void take() = 0;
    /// Waits until the values are there. From any thread.
    virtual void wait() = 0;
    /// The bytes of view `index`; valid after wait() until the next take().
    virtual std::span<const std::byte> bytes(std::size_t index) const = 0;
};

/// What the executor's hardware can do at best. NaN without an agreed figure, as for a CPU.
struct DevicePeaks {
    double flops_per_s = std::numeric_limits<double>::quiet_NaN();     // dense, in the storage type
    double f8_flops_per_s = std::numeric_limits<double>::quiet_NaN();  // dense, of FP8 operands
    double bytes_per_s = std::numeric_limits<double>::quiet_NaN();     // of its memory
};

/// One operation compared with the same operation on an independent path.
struct OracleLine {
    std::string text;  // step, op, relative error of every result, tolerance
    bool ok = false;
};

/// Everything is done in the order of the calls. What is enqueued may be done after the call has returned; what gives
/// the host a value waits for it.
class Executor {
  public:
    virtual ~Executor() = default;

    /// As the log and the console name it.
    virtual std::string device_name() const = 0;
    /// What the bits of a result depend on: "CPU", for any number of threads, or the GPU's name.
    virtual std::string device_model() const = 0;
    virtual DevicePeaks peaks() const { return {}; }

    /// Whether run() returns before the pass is done, so that the host should stay ahead of it.
    virtual bool asynchronous() const { return false; }

    /// Memory in use on the executor's device outside the arena when it was made, in bytes: its own and, if others
    /// share the device, theirs.
    virtual std::int64_t overhead_bytes() const { return 0; }

    /// Where the buffers lie, in the executor's own memory.
    virtual const Memory& memory() const = 0;

    /// Copies view.bytes() bytes between host memory and a view, whose elements must be contiguous. `source` may be
    /// changed as soon as upload returns.
    virtual void upload(const View& view, const void* source) = 0;
    virtual void download(const View& view, void* target) = 0;

    /// The bytes of a contiguous view in host memory: in place where the executor's memory is the host's, else copied
    /// into `staging`.
    virtual std::span<const std::byte> bytes(const View& view, std::vector<std::byte>& staging) = 0;

    /// The values that contiguous views of numbers have after everything enqueued so far, one view after the other. For
    /// small ones.
    virtual std::unique_ptr<Readback> read_values(const std::vector<View>& views) = 0;

    /// Host memory for copies of contiguous views that nothing but an update changes. Once; it lives as long as the
    /// executor. Throws Error when there is no memory for it.
    virtual StateCopy& make_state_copy(const std::vector<View>& views) = 0;

    /// row * cols + column of the first element of a floating-point view that is not finite, -1 without one.
    virtual std::int64_t first_nonfinite(const View& view) = 0;

    /// Statistics of every row of a view in bf16, f32 or f64.
    virtual std::vector<RowStats> row_stats(const View& view) = 0;

    /// Counts the codes of a view in f8e4m3 whose columns are a multiple of 16.
    virtual CodeCounts count_codes(const View& codes) = 0;

    virtual void run(Pass pass) = 0;
    virtual void run_observed(Pass pass, StepObserver& observer) = 0;

    /// Runs a pass with every step checked by the oracle. Throws Error where the executor's operations have none.
    virtual void run_checked(Pass pass, const std::function<void(const OracleLine&)>& line) = 0;

    /// A kernel that runs many steps of Pass::decode per launch. Nothing where the executor has none.
    virtual DecodeLaunchesOffer offer_decode_launches(double /*watchdog_seconds*/) { return {}; }

    /// What other ranks have sent is there for everything enqueued from now on: an update leaves weights on their way,
    /// and only passes wait for them by themselves. All ranks call it.
    virtual void receive() {}

    /// Waits until everything enqueued is done.
    virtual void finish() {}
};

/// Bytes of memory that the host can still give, for the CPU executor.
std::int64_t available_host_memory();

/// Allocates the arena on the host (zeroed) and runs passes through cpu::run. `schedules` must outlive it. `team`:
/// whose memory the arena is, and which the ops between ranks ask; null: there is one rank, and the arena is its own.
/// Throws Error when the arena exceeds the memory of the machine.
std::unique_ptr<Executor> make_cpu_executor(const Schedules& schedules, const MemoryPlan& plan, Team* team);

}  // namespace coda
