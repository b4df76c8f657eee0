// coda_bench pointwise: the ops that are neither GEMM nor attention, compared with a device copy of as many bytes.
//
// An op and cudaMemcpyAsync from device to device, which reads half of the op's bytes and writes the other half, run in
// turns in one process: after a warm-up, blocks of launches of at least `--block` seconds each. The op's launches are
// captured in a graph, as in a training step, so that launch overhead does not dominate short kernels. Copies are
// enqueued one by one, because a graph's copies would run on slower engines. The ratio is the median of the paired
// ratios. Buffers are rotated so that a launch does not find its operands in L2. cost() gives the bytes, except for
// Embed and EmbedBackward: their table's rows count once per distinct token.
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/cases/device_buffers.h"
#include "kernels/cases/op_cases.h"
#include "kernels/core/integers.h"
#include "kernels/hopper/run.h"
#include "kernels/hopper/sm90/check.h"
#include "src/core/median.h"
#include "tools/bench/commands.h"
#include "tools/bench/result_header.h"

namespace coda::bench {

using namespace cases;

namespace {

constexpr double kRotatedBytes = 256e6;                     // several times L2
constexpr double kHeldBytes = 32e9;                         // by all of a case's buffers together
constexpr std::int64_t kCopyBytes = std::int64_t{1} << 30;  // source and destination of copies, each
constexpr int kGraphLaunches = 16;

struct Options {
    std::vector<std::string> ops;  // all where none is named
    std::string json;
    bool overwrite = false;
    double warm_up = 1.5, block = 0.05;  // seconds
    int blocks = 5;
};

/// Launches in rotation, and the time per launch.
class Repetition {
  public:
    explicit Repetition(std::vector<hopper::Launch> launches)
        : launches_(std::move(launches)), count_(round_up(kGraphLaunches, std::ssize(launches_))) {
        CUDA_CHECK(cudaEventCreate(&begin_));
        CUDA_CHECK(cudaEventCreate(&end_));
    }
    ~Repetition() {
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
        if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    }
    Repetition(const Repetition&) = delete;
    Repetition& operator=(const Repetition&) = delete;

    /// From now on they are launched as one graph.
    void capture() {
        cudaStream_t stream = nullptr;
        cudaGraph_t graph = nullptr;
        CUDA_CHECK(cudaStreamCreate(&stream));
        CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        launch_all(stream);
        CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
        CUDA_CHECK(cudaGraphInstantiate(&executable_, graph, 0));
        CUDA_CHECK(cudaGraphDestroy(graph));
        CUDA_CHECK(cudaStreamDestroy(stream));
    }

    void enqueue() const {
        if (executable_ == nullptr) return launch_all(nullptr);
        CUDA_CHECK(cudaGraphLaunch(executable_, nullptr));
    }

    /// Milliseconds per launch, over at least `seconds`.
    double run(double seconds) {
        if (once_ == 0) once_ = time(1);
        const double milliseconds = 1e3 * seconds;
        return time(static_cast<int>(milliseconds / (once_ * static_cast<double>(count_))) + 1);
    }

  private:
    void launch_all(hopper::Stream stream) const {
        for (std::int64_t i = 0; i < count_; ++i)
            launches_[static_cast<std::size_t>(i % std::ssize(launches_))](stream);
    }
    double time(int repeats) {
        CUDA_CHECK(cudaEventRecord(begin_));
        for (int i = 0; i < repeats; ++i) enqueue();
        CUDA_CHECK(cudaEventRecord(end_));
        CUDA_CHECK(cudaEventSynchronize(end_));
        float milliseconds = 0;
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return static_cast<double>(milliseconds) / repeats / static_cast<double>(count_);
    }

    std::vector<hopper::Launch> launches_;
    std::int64_t count_;
    double once_ = 0;
    cudaGraphExec_t executable_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Copies that together read `bytes` / 2 and write as much, at places that move from launch to launch.
std::vector<hopper::Launch> copies_of(double bytes, int rotations, std::byte* from, std::byte* to) {
    const std::int64_t half = round_up(static_cast<std::int64_t>(bytes / 2), 256);
    std::vector<hopper::Launch> launches;
    for (int i = 0; i < rotations; ++i) {
        const std::int64_t start = half < kCopyBytes ? i * half % (kCopyBytes - half + 1) / 256 * 256 : 0;
        launches.push_back([=](hopper::Stream stream) {
            for (std::int64_t left = half; left > 0; left -= kCopyBytes)
                CUDA_CHECK(cudaMemcpyAsync(to + start, from + start,
                                           static_cast<std::size_t>(std::min(left, kCopyBytes)),
                                           cudaMemcpyDeviceToDevice, stream));
        });
    }
    return launches;
}

struct Result {
    double ms, copy_ms, ratio;
    double lowest_ratio, highest_ratio;
};

struct TimedCase {
    const char* op;
    OpCase (*make)(Size size);
};

std::vector<TimedCase> timed_cases() {
    std::vector<TimedCase> timed;
    for_each_op_type([&]<class T>() {
        for (const NamedCase& each : cases_of<T>().others)
            if (each.benchmark) timed.push_back({T::name, each.make});
    });
    return timed;
}

Result measure(const OpCase& made, const Options& options, Clocks* clocks) {
    // An op that usually touches little of its operands, such as ExactCrossEntropy, must not fill the memory with them.
    double held = 0;
    for (const cases::Buffer& buffer : made.buffers) held += static_cast<double>(buffer.view.span_bytes());
    const double rotations_wanted = std::min(kRotatedBytes / made.bytes, kHeldBytes / held);
    const int rotations = std::clamp(static_cast<int>(rotations_wanted), 1, 64);
    std::vector<std::unique_ptr<DeviceBuffers>> buffers;
    std::vector<hopper::Launch> launches;
    for (int i = 0; i < rotations; ++i) {
        buffers.push_back(std::make_unique<DeviceBuffers>(made.buffers, static_cast<std::uint64_t>(i) + 1));
        const Memory& memory = buffers.back()->memory();
        if (!made.tokens.empty())
            CUDA_CHECK(cudaMemcpy(memory.address(made.buffers[0].view), made.tokens.data(), 4 * made.tokens.size(),
                                  cudaMemcpyHostToDevice));
        launches.push_back(hopper::prepare(made.op, memory));
    }
    const View area{0, DType::f32, 0, 1, kCopyBytes / 4, kCopyBytes / 4, 0};
    const DeviceBuffers areas({{"from", area, Fill::normal, 1, Access::in}, {"to", area, Fill::nothing, 1, Access::in}},
                              1);
    View to = area;
    to.buffer = 1;
    Repetition ours(launches);
    ours.capture();
    Repetition copy(copies_of(made.bytes, rotations, areas.memory().address(area), areas.memory().address(to)));
    ours.run(options.warm_up / 2);
    copy.run(options.warm_up / 2);
    std::vector<double> times, copy_times, ratios;
    for (int block = 0; block < options.blocks; ++block) {
        times.push_back(ours.run(options.block));
        copy_times.push_back(copy.run(options.block));
        ratios.push_back(times.back() / copy_times.back());
    }
    if (clocks != nullptr) {
        // The clocks are read while half a second of work runs.
        for (double spent = 0; spent < 500; spent += times.back() * kGraphLaunches) ours.enqueue();
        *clocks = current_clocks();
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    const auto [lowest, highest] = std::ranges::minmax(ratios);
    return {median_of(times), median_of(copy_times), median_of(ratios), lowest, highest};
}

void run(const Options& options) {
    require_outputs({{"--json", options.json}}, options.overwrite);
    nlohmann::json records = nlohmann::json::array();
    Clocks clocks;
    std::printf("%-20s %-34s | %9s | %6s | %9s | %s\n", "op", "shape", "ms", "GB/s", "copy ms", "ratio");
    for (const TimedCase& timed : timed_cases()) {
        if (!options.ops.empty() && std::find(options.ops.begin(), options.ops.end(), timed.op) == options.ops.end())
            continue;
        const OpCase made = timed.make(Size::step);
        const bool first = records.empty() && !options.json.empty();
        const Result result = measure(made, options, first ? &clocks : nullptr);
        const double gbps = made.bytes / result.ms * 1e-6;
        std::printf("%-20s %-34s | %9.4f | %6.0f | %9.4f | %.3f\n", timed.op, made.shape.c_str(), result.ms, gbps,
                    result.copy_ms, result.ratio);
        std::fflush(stdout);
        records.push_back({{"op", timed.op},
                           {"shape", made.shape},
                           {"bytes", made.bytes},
                           {"ms", result.ms},
                           {"gbps", gbps},
                           {"copy_ms", result.copy_ms},
                           {"ratio", result.ratio},
                           {"spread", {result.lowest_ratio, result.highest_ratio}}});
    }
    if (!options.json.empty()) write_run(options.json, clocks, records);
}

}  // namespace

void add_pointwise(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("pointwise", "embedding, loss, finishing and optimizer ops compared with a copy");
    auto options = std::make_shared<Options>();
    std::vector<std::string> names;
    for (const TimedCase& timed : timed_cases()) {  // an op's cases follow one another
        if (names.empty() || names.back() != timed.op) names.emplace_back(timed.op);
    }
    command->add_option("--op", options->ops, "only these ops")->check(CLI::IsMember(names));
    command->add_option("--json", options->json, "write the records to this file, which must be new");
    command->add_flag("--overwrite", options->overwrite, "let --json replace a file of this name");
    command->add_option("--warm-up", options->warm_up, "seconds per op");
    command->add_option("--block", options->block, "seconds per block");
    command->add_option("--blocks", options->blocks, "pairs of blocks")->check(CLI::PositiveNumber);
    command->callback([options] { run(*options); });
}

}  // namespace coda::bench
