#include "kernels/hopper/decode/launch.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/hopper/decode/kernels.h"
#include "kernels/hopper/decode/plan/input_share.h"
#include "kernels/hopper/sm90/block_map.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/device.h"

namespace coda::hopper::decode {

namespace {

/// Memory of the device; `count` elements, all bits 0.
template <class T>
class DeviceArray {
  public:
    explicit DeviceArray(std::size_t count) : bytes_(count * sizeof(T)) {
        CUDA_CHECK(cudaMalloc(&memory_, std::max<std::size_t>(bytes_, 1)));
        CUDA_CHECK(cudaMemset(memory_, 0, bytes_));
    }
    ~DeviceArray() { cudaFree(memory_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    T* get() const { return static_cast<T*>(memory_); }
    std::size_t bytes() const { return bytes_; }

  private:
    void* memory_ = nullptr;
    std::size_t bytes_;
};

/// A flag that the host writes while a kernel runs.
class HostFlag {
  public:
    HostFlag() {
        void* memory = nullptr;
        CUDA_CHECK(cudaHostAlloc(&memory, sizeof(std::int32_t), cudaHostAllocMapped));
        flag_ = static_cast<volatile std::int32_t*>(memory);
        *flag_ = 0;
    }
    ~HostFlag() { cudaFreeHost(const_cast<std::int32_t*>(flag_)); }
    HostFlag(const HostFlag&) = delete;
    HostFlag& operator=(const HostFlag&) = delete;

    void set(std::int32_t value) { *flag_ = value; }
    const std::int32_t* get() const { return const_cast<const std::int32_t*>(flag_); }

  private:
    volatile std::int32_t* flag_ = nullptr;
};

std::size_t trace_words(const DecodePlan& plan) {
    return static_cast<std::size_t>(stamp_index(static_cast<int>(plan.ops.size()), 0, plan.grid, 0, Stamp::begin));
}

}  // namespace

struct FusedDecode::Device {
    DecodePlan plan;
    LaunchOptions options;
    Kernel kernel;
    Arguments arguments;
    DeviceArray<DecodeOp> ops;
    DeviceArray<CUtensorMap> maps;
    DeviceArray<std::uint64_t> words;
    DeviceArray<std::int32_t> start, made;
    DeviceArray<std::uint64_t> report, trace;
    HostFlag cancel;

    Device(DecodePlan given, const LaunchOptions& chosen)
        : plan(std::move(given)),
          options(chosen),
          kernel(kernel_for(plan)),
          arguments{
              .operands = plan.operands,
              .layout = layout_of(plan, options.in_flight_bytes > 0 ? options.in_flight_bytes
                                                                    : fastest_in_flight(plan, memory_bytes_per_s())),
              .exchange = exchange_of(plan.operands.shape, plan.grid)},
          ops(plan.ops.size()),
          maps(plan.ops.size()),
          words(static_cast<std::size_t>(arguments.exchange.words)),
          start(static_cast<std::size_t>(3 * plan.operands.shape.batch)),
          made(static_cast<std::size_t>(options.most_steps * plan.operands.shape.batch)),
          report(1),
          trace(options.traced_step < 0 ? 0 : trace_words(plan)) {
        require(options.most_steps >= 1 && options.most_steps <= kMostSteps, "decode: ", options.most_steps,
                " tokens per launch, at most ", kMostSteps);
        CUDA_CHECK(cudaMemcpy(ops.get(), plan.ops.data(), ops.bytes(), cudaMemcpyHostToDevice));
        set_maps();
        arguments.ops = ops.get();
        arguments.maps = reinterpret_cast<const std::byte*>(maps.get());
        arguments.op_count = static_cast<int>(plan.ops.size());
        arguments.layers = layers_of(arguments.op_count);
        arguments.grid = plan.grid;
        arguments.pairs = pairs_sms(plan.operands.shape, plan.grid);
        arguments.words = words.get();
        arguments.start = start.get();
        arguments.made = made.get();
        arguments.cancel = cancel.get();
        arguments.report = report.get();
        arguments.trace = trace.get();
        arguments.traced_step = options.traced_step;
        arguments.watchdog_nanoseconds = static_cast<std::uint64_t>(options.watchdog_seconds * 1e9);
        CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, arguments.layout.bytes));
        require(plan.grid <= multiprocessors(), "decode: a plan for ", plan.grid, " SMs on a device of ",
                multiprocessors());
    }

    /// No word of an earlier launch may have an epoch of this one: before epochs come around, all words are cleared.
    void reserve_epochs(int steps, Stream stream) {
        const std::int64_t needed = std::int64_t{steps} * arguments.op_count;
        if (next_epoch_ + needed > std::int64_t{1} << 32) {
            CUDA_CHECK(cudaMemsetAsync(words.get(), 0, words.bytes(), stream));
            next_epoch_ = 1;
        }
        arguments.epoch = static_cast<std::uint32_t>(next_epoch_);
        next_epoch_ += needed;
    }

  private:
    void set_maps() {
        std::vector<CUtensorMap> all(plan.ops.size());
        for (std::size_t s = 0; s < all.size(); ++s) {
            const DecodeOp& op = plan.ops[s];
            if (!is_gemm(op.kind) || op.int4) continue;
            const WeightBlocks blocks{.weights = static_cast<const Bf16*>(op.weights),
                                      .rows = std::int64_t{op.tiles} * kTileRows,
                                      .columns = op.columns,
                                      .ld = plan.lds[s]};
            const Slices slices = plan.operands.shape.slices(op.columns);
            all[s] = in_whole_blocks(op.columns)
                         ? block_map(blocks, kTileRows, kBlockColumns, slices.most * stage_slices(slices, false))
                         : row_map(blocks, kTileRows, kBlockColumns);
        }
        static_assert(sizeof(CUtensorMap) == kMapBytes);
        CUDA_CHECK(cudaMemcpy(maps.get(), all.data(), maps.bytes(), cudaMemcpyHostToDevice));
    }

    std::int64_t next_epoch_ = 1;
};

FusedDecode::FusedDecode(DecodePlan plan, const LaunchOptions& options)
    : device_(std::make_unique<Device>(std::move(plan), options)) {}
FusedDecode::~FusedDecode() = default;

const DecodePlan& FusedDecode::plan() const { return device_->plan; }
void FusedDecode::cancel() { device_->cancel.set(1); }
void FusedDecode::resume() { device_->cancel.set(0); }

void FusedDecode::launch(int steps, Stream stream) {
    Device& device = *device_;
    Arguments& arguments = device.arguments;
    const auto batch = static_cast<std::size_t>(device.plan.operands.shape.batch);
    require(steps >= 1 && steps <= device.options.most_steps, "decode: a launch of ", steps, " steps, at most ",
            device.options.most_steps);
    require(steps == 1 || !device.plan.shares_caches(), "decode: a launch of ", steps,
            " steps, and a sequence has several tokens in each: such a launch is one step");
    arguments.steps = steps;
    device.reserve_epochs(steps, stream);
    // The kernel changes these, and an SM that starts late must not see how.
    const ChoiceRows& rows = device.plan.operands.choice;
    const std::int32_t* from[] = {rows.token, rows.lengths, rows.state};
    for (std::size_t i = 0; i < 3; ++i)
        CUDA_CHECK(cudaMemcpyAsync(device.start.get() + i * batch, from[i], batch * sizeof(std::int32_t),
                                   cudaMemcpyDeviceToDevice, stream));
    CUDA_CHECK(cudaMemsetAsync(device.made.get(), 0xff, device.made.bytes(), stream));
    if (const Exchange& exchange = device.arguments.exchange; exchange.lamport_words > 0)  // kEmpty
        CUDA_CHECK(cudaMemsetAsync(
            device.words.get() + exchange.lamport, 0xff,
            static_cast<std::size_t>(kLamportBuffers * exchange.lamport_words) * sizeof(std::uint64_t), stream));
    if (device.trace.bytes() > 0) CUDA_CHECK(cudaMemsetAsync(device.trace.get(), 0, device.trace.bytes(), stream));
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeCooperative;
    attributes[0].val.cooperative = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {2, 1, 1};
    const cudaLaunchConfig_t config{.gridDim = dim3(static_cast<unsigned>(arguments.grid)),
                                    .blockDim = dim3(kThreads),
                                    .dynamicSmemBytes = static_cast<std::size_t>(arguments.layout.bytes),
                                    .stream = stream,
                                    .attrs = attributes,
                                    .numAttrs = arguments.pairs ? 2u : 1u};
    void* parameters[] = {&arguments};
    CUDA_CHECK(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(device.kernel), parameters));
}

void FusedDecode::finish(Stream stream) {
    Device& device = *device_;
    std::uint64_t report = 0;
    CUDA_CHECK(cudaMemcpyAsync(&report, device.report.get(), sizeof report, cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
    if (report == 0) return;
    CUDA_CHECK(cudaMemsetAsync(device.report.get(), 0, sizeof report, stream));
    throw Error(describe(wait_of(report), device.plan));
}

std::vector<std::int32_t> FusedDecode::made(int steps) const {
    const auto count = static_cast<std::size_t>(steps * device_->plan.operands.shape.batch);
    std::vector<std::int32_t> made(count);
    CUDA_CHECK(cudaMemcpy(made.data(), device_->made.get(), count * sizeof made[0], cudaMemcpyDeviceToHost));
    return made;
}

StepTrace FusedDecode::trace() const {
    StepTrace trace(device_->trace.bytes() / sizeof(std::uint64_t));
    require(!trace.empty(), "decode: no step is traced: LaunchOptions::traced_step");
    CUDA_CHECK(cudaMemcpy(trace.data(), device_->trace.get(), device_->trace.bytes(), cudaMemcpyDeviceToHost));
    return trace;
}

}  // namespace coda::hopper::decode
