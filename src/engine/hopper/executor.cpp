// Passes as CUDA graphs over one arena. Step by step they run the same prepared launches, between events.
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <chrono>
#include <optional>

#include "kernels/hopper/pointwise/nonfinite.h"
#include "kernels/hopper/pointwise/row_stats.h"
#include "kernels/hopper/run.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/device.h"
#include "kernels/hopper/sm90/device_model.h"
#include "kernels/oracle/oracle.h"
#include "kernels/oracle/tolerance.h"
#include "src/core/console.h"
#include "src/engine/hopper/decode_launches.h"
#include "src/engine/hopper/device_arena.h"
#include "src/engine/hopper/readback.h"
#include "src/engine/hopper/staging.h"
#include "src/engine/hopper/state_copy.h"
#include "src/engine/hopper_executor.h"
#include "src/engine/open_transfers.h"

namespace coda {

namespace {

constexpr std::size_t kStagingBytes = std::size_t{32} << 20;

double now_us() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

class OwnStream {
  public:
    OwnStream() { CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    ~OwnStream() { cudaStreamDestroy(stream_); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;
    cudaStream_t get() const { return stream_; }

  private:
    cudaStream_t stream_{};
};

std::string label_of(const Step& step) {
    return step.layer < 0 ? text(step.name) : text("layer ", step.layer, " ", step.name);
}

/// Launches [first, end) of a pass: a graph of kernels, or an op between ranks, which no graph can have.
struct Leg {
    std::size_t first, end;
    cudaGraphExec_t graph{};  // null: the launches themselves
};

/// A pass: its launches in order, and its legs once it has run. With one rank it is a single graph.
struct PreparedPass {
    std::vector<hopper::Launch> launches;
    std::vector<Leg> legs;
    bool prepared = false;
};

class HopperExecutor : public Executor {
  public:
    HopperExecutor(const Schedules& schedules, const MemoryPlan& plan, Team* team)
        : schedules_(schedules), staging_(kStagingBytes, stream_.get(), team != nullptr), readbacks_(team != nullptr) {
        std::byte* const base = team ? team->memory(Where::gpu, plan.arena_bytes())
                                     : arena_.emplace("the arena", plan.arena_bytes()).base();
        std::vector<std::byte*> bases;
        for (const std::int64_t offset : plan.offset) bases.push_back(offset < 0 ? nullptr : base + offset);
        CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&counts_), sizeof(CountedPair)));
        bases.push_back(counts_);
        counts_view_ = counted_pair_after(plan);
        if (team) transfers_.emplace(*team);
        memory_ = Memory(std::move(bases), transfers_ ? &*transfers_ : nullptr);
        if (team) team->set_transfers(transfers_of(schedules, plan));
        CUDA_CHECK(cudaMemsetAsync(base, 0, static_cast<std::size_t>(plan.persistent_bytes), stream_.get()));
        CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&bad_element_), sizeof *bad_element_));
        // Kernels that refuse a shape do it now. The passes that a training run comes to later share the kernels of the
        // first, and the shorter prefills share the kernels of the longest.
        const bool trains = schedules.has(Pass::first);
        for (const Pass pass : schedules.passes()) {
            const bool shorter_prefill = is_prefill(pass) && prefill_index(pass) + 1 < schedules.prefill.size();
            if ((!trains && !shorter_prefill) || pass == Pass::first || pass == Pass::last || pass == Pass::update) {
                legs_of(pass);
            }
        }
        finish();
        std::size_t free = 0, total = 0;
        CUDA_CHECK(cudaMemGetInfo(&free, &total));
        overhead_ = static_cast<std::int64_t>(total - free) - plan.arena_bytes();
    }
    ~HopperExecutor() override {
        cudaStreamSynchronize(stream_.get());
        for (const PreparedPass& pass : passes_)
            for (const Leg& leg : pass.legs)
                if (leg.graph) cudaGraphExecDestroy(leg.graph);
        for (const cudaEvent_t event : events_) cudaEventDestroy(event);
        cudaFree(bad_element_);
        cudaFree(counts_);
    }

    std::string device_name() const override {
        cudaDeviceProp properties{};
        CUDA_CHECK(cudaGetDeviceProperties(&properties, device()));
        return properties.name;
    }

    std::string device_model() const override { return device_name(); }

    DevicePeaks peaks() const override {
        // 989.4 TFLOP/s of 132 SMs is the data sheet's dense bf16 figure of the H100 and H200 SXM, by which the field
        // quotes MFU.
        constexpr double kFlopsPerProcessor = 989.4e12 / hopper::kMultiprocessors;
        const double flops_per_s = kFlopsPerProcessor * hopper::multiprocessors();
        return {
            .flops_per_s = flops_per_s, .f8_flops_per_s = 2 * flops_per_s, .bytes_per_s = hopper::memory_bytes_per_s()};
    }

    bool asynchronous() const override { return true; }
    std::int64_t overhead_bytes() const override { return overhead_; }
    const Memory& memory() const override { return memory_; }

    void upload(const View& view, const void* source) override {
        staging_.upload(memory_.address(view), source, static_cast<std::size_t>(view.bytes()));
    }
    void download(const View& view, void* target) override {
        staging_.download(target, memory_.address(view), static_cast<std::size_t>(view.bytes()));
    }
    std::span<const std::byte> bytes(const View& view, std::vector<std::byte>& staging) override {
        staging.resize(static_cast<std::size_t>(view.bytes()));
        download(view, staging.data());
        return staging;
    }
    std::unique_ptr<Readback> read_values(const std::vector<View>& views) override {
        return readbacks_.read(views, memory_, stream_.get());
    }

    StateCopy& make_state_copy(const std::vector<View>& views) override {
        copy_ = std::make_unique<PinnedStateCopy>(views, memory_, stream_.get());
        return *copy_;
    }

    std::int64_t first_nonfinite(const View& view) override {
        if (view.dtype == DType::i32 || view.dtype == DType::u8) return -1;
        hopper::enqueue_first_nonfinite(view, memory_, bad_element_, stream_.get());
        std::int64_t found = 0;
        staging_.download(&found, bad_element_, sizeof found);
        return found;
    }

    std::vector<RowStats> row_stats(const View& view) override {
        std::vector<RowStats> stats(static_cast<std::size_t>(view.rows));
        if (stats.size() > row_stats_rows_) {
            row_stats_.reset();
            row_stats_ = std::make_unique<DeviceArena>("statistics of a tensor",
                                                       static_cast<std::int64_t>(sizeof(RowStats)) * view.rows);
            row_stats_rows_ = stats.size();
        }
        if (stats.empty()) return stats;
        auto* device = reinterpret_cast<RowStats*>(row_stats_->base());
        hopper::enqueue_row_stats(view, memory_, device, stream_.get());
        staging_.download(stats.data(), row_stats_->base(), sizeof(RowStats) * stats.size());
        return stats;
    }

    CodeCounts count_codes(const View& codes) override {
        const CountF8 op = count_op(codes, counts_view_);
        hopper::prepare(op, memory_)(stream_.get());
        CountedPair counts{};
        staging_.download(counts.data(), counts_, sizeof counts);
        return code_counts(op, counts);
    }

    void run(Pass pass) override {
        hold(pass);
        for (const Leg& leg : legs_of(pass)) {
            if (leg.graph) {
                CUDA_CHECK(cudaGraphLaunch(leg.graph, stream_.get()));
            } else {
                launch(passes_[static_cast<std::size_t>(pass)], leg);
            }
        }
    }

    void run_observed(Pass pass, StepObserver& observer) override {
        hold(pass);
        const std::vector<hopper::Launch>& launches = prepared(pass).launches;
        require_events(launches.size() + 1);
        finish();
        const double start = now_us();
        CUDA_CHECK(cudaEventRecord(events_[0], stream_.get()));
        for (std::size_t i = 0; i < launches.size(); ++i) {
            nvtxRangePushA(label_of(schedules_[pass][i]).c_str());
            launches[i](stream_.get());
            nvtxRangePop();
            CUDA_CHECK(cudaEventRecord(events_[i + 1], stream_.get()));
            if (observer.reads_results()) report(pass, i, start, observer);
        }
        finish();
        if (observer.reads_results()) return;
        for (std::size_t i = 0; i < launches.size(); ++i) report(pass, i, start, observer);
    }

    void run_checked(Pass pass, const std::function<void(const OracleLine&)>& line) override {
        hold(pass);
        oracle::Oracle oracle;
        const std::vector<hopper::Launch>& launches = prepared(pass).launches;
        for (std::size_t i = 0; i < launches.size(); ++i) {
            const Step& step = schedules_[pass][i];
            const oracle::Capture before = oracle.capture(step.op, memory_, stream_.get());
            launches[i](stream_.get());
            const oracle::Report report = oracle.check(step.op, memory_, before, stream_.get());
            line({.text = oracle::line_of(label_of(step), step.op, report),
                  .ok = oracle::within_tolerance(step.op, report)});
        }
    }

    DecodeLaunchesOffer offer_decode_launches(double watchdog_seconds) override {
        return coda::offer_decode_launches(schedules_.decode, memory_, watchdog_seconds, stream_.get());
    }

    void receive() override {
        if (transfers_) transfers_->finish_all(stream_.get());
    }
    void finish() override { CUDA_CHECK(cudaStreamSynchronize(stream_.get())); }

  private:
    static int device() {
        int current = 0;
        CUDA_CHECK(cudaGetDevice(&current));
        return current;
    }

    /// An update changes what a copy may still be reading.
    void hold(Pass pass) {
        if (copy_ && pass == Pass::update) copy_->hold_stream();
    }

    PreparedPass& prepared(Pass pass) {
        PreparedPass& here = passes_[static_cast<std::size_t>(pass)];
        if (!here.prepared) {
            for (const Step& step : schedules_[pass]) here.launches.push_back(hopper::prepare(step.op, memory_));
            here.prepared = true;
        }
        return here;
    }

    void launch(const PreparedPass& pass, const Leg& leg) {
        for (std::size_t i = leg.first; i < leg.end; ++i) pass.launches[i](stream_.get());
    }

    const std::vector<Leg>& legs_of(Pass pass) {
        PreparedPass& here = prepared(pass);
        if (!here.legs.empty()) return here.legs;
        const Schedule& schedule = schedules_[pass];
        for (std::size_t i = 0; i < schedule.size(); ++i) {
            const bool joins = i > 0 && between_ranks(schedule[i].op) == between_ranks(schedule[i - 1].op);
            if (!joins) here.legs.push_back({i, i});
            here.legs.back().end = i + 1;
        }
        for (Leg& leg : here.legs)
            if (!between_ranks(schedule[leg.first].op)) leg.graph = captured(here, leg);
        return here.legs;
    }

    cudaGraphExec_t captured(const PreparedPass& pass, const Leg& leg) {
        cudaGraph_t graph{};
        cudaGraphExec_t executable{};
        CUDA_CHECK(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
        launch(pass, leg);
        CUDA_CHECK(cudaStreamEndCapture(stream_.get(), &graph));
        const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
        cudaGraphDestroy(graph);
        CUDA_CHECK(status);
        CUDA_CHECK(cudaGraphUpload(executable, stream_.get()));
        return executable;
    }

    void require_events(std::size_t count) {
        while (events_.size() < count) {
            cudaEvent_t event{};
            CUDA_CHECK(cudaEventCreate(&event));
            events_.push_back(event);
        }
    }

    /// Step i lies between events i and i + 1.
    void report(Pass pass, std::size_t i, double start_us, StepObserver& observer) {
        float before = 0, ms = 0;
        CUDA_CHECK(cudaEventSynchronize(events_[i + 1]));
        CUDA_CHECK(cudaEventElapsedTime(&before, events_[0], events_[i]));
        CUDA_CHECK(cudaEventElapsedTime(&ms, events_[i], events_[i + 1]));
        observer.after(pass, i, start_us + 1000.0 * before, ms);
    }

    const Schedules& schedules_;
    OwnStream stream_;
    std::optional<DeviceArena> arena_;  // without a team
    StagingRing staging_;
    ReadbackPool readbacks_;
    std::unique_ptr<PinnedStateCopy> copy_;
    std::optional<OpenTransfers> transfers_;  // of a team
    Memory memory_;
    std::array<PreparedPass, std::size(kPasses)> passes_;
    std::vector<cudaEvent_t> events_;
    std::int64_t* bad_element_ = nullptr;
    std::byte* counts_ = nullptr;
    View counts_view_;
    std::unique_ptr<DeviceArena> row_stats_;  // made when it is first asked for
    std::size_t row_stats_rows_ = 0;
    std::int64_t overhead_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_hopper_executor(const Schedules& schedules, const MemoryPlan& plan, Team* team) {
    return std::make_unique<HopperExecutor>(schedules, plan, team);
}

}  // namespace coda
