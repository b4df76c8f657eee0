#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <utility>

#include "kernels/core/f8.h"
#include "kernels/cpu/row_stats.h"
#include "kernels/cpu/run.h"
#include "src/engine/executor.h"
#include "src/engine/feed.h"
#include "src/engine/host_arena.h"
#include "src/engine/open_transfers.h"

namespace coda {

namespace {

double now_us() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

class HostCopy : public StateCopy {
  public:
    HostCopy(const std::vector<View>& views, const Memory& memory) {
        for (const View& view : views) {
            parts_.push_back({memory.address(view), static_cast<std::size_t>(view.bytes()), HostArena(view.bytes())});
        }
    }
    void take() override {
        constexpr std::size_t kBlock = std::size_t{1} << 20;
        for (const Part& part : parts_) {
#pragma omp parallel for
            for (std::size_t at = 0; at < part.bytes; at += kBlock) {
                std::memcpy(part.copy.base() + at, part.source + at, std::min(kBlock, part.bytes - at));
            }
        }
    }
    void wait() override {}
    std::span<const std::byte> bytes(std::size_t index) const override {
        return {parts_.at(index).copy.base(), parts_.at(index).bytes};
    }

  private:
    struct Part {
        const std::byte* source;
        std::size_t bytes;
        HostArena copy;
    };
    std::deque<Part> parts_;
};

class ReadValues : public Readback {
  public:
    explicit ReadValues(std::vector<double> values) : values_(std::move(values)) {}
    std::vector<double> wait() override { return values_; }

  private:
    std::vector<double> values_;
};

template <class T>
std::int64_t first_nonfinite_of(std::span<const std::byte> bytes) {
    const std::span values(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
    const auto bad =
        std::find_if(values.begin(), values.end(), [](T value) { return !std::isfinite(static_cast<double>(value)); });
    return bad == values.end() ? -1 : bad - values.begin();
}

class CpuExecutor : public Executor {
  public:
    CpuExecutor(const Schedules& schedules, const MemoryPlan& plan, Team* team) : schedules_(schedules) {
        std::byte* const base =
            team ? team->memory(Where::host, plan.arena_bytes()) : arena_.emplace(plan.arena_bytes()).base();
        std::vector<std::byte*> bases;
        for (const std::int64_t offset : plan.offset) bases.push_back(offset < 0 ? nullptr : base + offset);
        bases.push_back(reinterpret_cast<std::byte*>(counts_.data()));
        counts_view_ = counted_pair_after(plan);
        if (team) transfers_.emplace(*team);
        memory_ = Memory(std::move(bases), transfers_ ? &*transfers_ : nullptr);
        if (team) team->set_transfers(transfers_of(schedules, plan));
    }

    std::string device_name() const override { return text("CPU, ", omp_get_max_threads(), " threads"); }

    std::string device_model() const override { return "CPU"; }

    const Memory& memory() const override { return memory_; }

    void upload(const View& view, const void* source) override {
        std::memcpy(memory_.address(view), source, static_cast<std::size_t>(view.bytes()));
    }
    void download(const View& view, void* target) override {
        std::memcpy(target, memory_.address(view), static_cast<std::size_t>(view.bytes()));
    }
    std::span<const std::byte> bytes(const View& view, std::vector<std::byte>&) override {
        return {memory_.address(view), static_cast<std::size_t>(view.bytes())};
    }

    std::unique_ptr<Readback> read_values(const std::vector<View>& views) override {
        std::vector<double> values;
        for (const View& view : views) {
            for (std::int64_t i = 0; i < view.count(); ++i)
                values.push_back(download_scalar(*this, part_of(view, i, 1)));
        }
        return std::make_unique<ReadValues>(std::move(values));
    }

    StateCopy& make_state_copy(const std::vector<View>& views) override {
        copy_ = std::make_unique<HostCopy>(views, memory_);
        return *copy_;
    }

    std::int64_t first_nonfinite(const View& view) override {
        const std::span<const std::byte> data(memory_.address(view), static_cast<std::size_t>(view.bytes()));
        switch (view.dtype) {
            case DType::f64: return first_nonfinite_of<double>(data);
            case DType::f32: return first_nonfinite_of<float>(data);
            case DType::bf16: return first_nonfinite_of<Bf16>(data);
            case DType::f8e4m3: return first_nonfinite_of<F8E4M3>(data);
            case DType::f8e5m2: return first_nonfinite_of<F8E5M2>(data);
            case DType::i32:
            case DType::u8: return -1;
        }
        return -1;
    }

    std::vector<RowStats> row_stats(const View& view) override { return cpu::row_stats(view, memory_); }

    CodeCounts count_codes(const View& codes) override {
        const CountF8 op = count_op(codes, counts_view_);
        cpu::run(op, memory_);
        return code_counts(op, counts_);
    }

    void receive() override {
        if (transfers_) transfers_->finish_all(nullptr);
    }

    void run(Pass pass) override {
        for (const Step& step : schedules_[pass]) cpu::run(step.op, memory_);
    }

    void run_observed(Pass pass, StepObserver& observer) override {
        const Schedule& schedule = schedules_[pass];
        for (std::size_t i = 0; i < schedule.size(); ++i) {
            const double start = now_us();
            cpu::run(schedule[i].op, memory_);
            observer.after(pass, i, start, (now_us() - start) / 1000.0);
        }
    }

    void run_checked(Pass, const std::function<void(const OracleLine&)>&) override {
        throw Error(
            "the oracle compares the GPU's kernels with an independent path; on the CPU there is nothing to check");
    }

  private:
    const Schedules& schedules_;
    std::optional<HostArena> arena_;  // without a team
    CountedPair counts_{};
    View counts_view_;
    std::optional<OpenTransfers> transfers_;  // of a team
    Memory memory_;
    std::unique_ptr<HostCopy> copy_;
};

}  // namespace

std::int64_t available_host_memory() {
    std::int64_t available = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    std::ifstream meminfo("/proc/meminfo");
    std::string key;
    std::int64_t kib = 0;
    while (meminfo >> key >> kib) {
        if (key == "MemAvailable:") available = kib * 1024;
        meminfo.ignore(256, '\n');
    }
    // A container's limit (cgroup v2); the file says "max" if there is no limit.
    std::int64_t limit = 0, used = 0;
    if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
        available = std::min(available, limit - used);
    }
    return available;
}

std::unique_ptr<Executor> make_cpu_executor(const Schedules& schedules, const MemoryPlan& plan, Team* team) {
    return std::make_unique<CpuExecutor>(schedules, plan, team);
}

}  // namespace coda
