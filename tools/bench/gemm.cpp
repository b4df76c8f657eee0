// coda_bench gemm: every GEMM program of a preset against cuBLASLt's bare product of the same shape and output type.
//
// Both run in one process in turns: after a warm-up of at least two seconds, blocks of at least 100 ms of launches
// each, program and cuBLAS alternating, so that both see the same clocks; the ratio is the median of the paired ratios.
// Data is normal; buffers are rotated so that a launch does not find its operands in L2.
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/hopper/run.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/oracle/cublaslt.h"
#include "tools/bench/device_buffers.h"
#include "tools/bench/gemm_cases.h"
#include "tools/bench/gemm_tune.h"
#include "tools/bench/result_header.h"

namespace coda::bench {

namespace {

constexpr double kRotatedBytes = 256e6;  // several times L2
constexpr int kHeuristics = 8;           // of cuBLASLt, of which the fastest is measured

struct Options {
    std::string preset = "llama1b";
    std::vector<std::string> shapes;  // PROGRAM:M:N:K instead of a preset
    std::string json;
    double warm_up = 2.0;  // seconds
    double block = 0.1;    // seconds
    int blocks = 5;
    bool tune = false;
};

/// Runs launches for at least `seconds` and returns milliseconds per launch.
class Timer {
  public:
    Timer() {
        CUDA_CHECK(cudaEventCreate(&begin_));
        CUDA_CHECK(cudaEventCreate(&end_));
    }
    ~Timer() {
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    double run(const std::vector<hopper::Launch>& launches, int count) {
        CUDA_CHECK(cudaEventRecord(begin_));
        for (int i = 0; i < count; ++i) launches[static_cast<std::size_t>(i) % launches.size()](nullptr);
        CUDA_CHECK(cudaEventRecord(end_));
        CUDA_CHECK(cudaEventSynchronize(end_));
        float milliseconds = 0;
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return milliseconds / count;
    }

  private:
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// The case's product alone, with its majors and output type.
oracle::Product bare_product(const GemmCase& made, const Memory& memory, void* out) {
    oracle::Product product;
    product.a = memory.address(made.a);
    product.b = memory.address(made.b);
    product.out = out;
    product.m = made.shape.m;
    product.n = made.shape.n;
    product.k = made.shape.k;
    product.lda = made.a.ld;
    product.ldb = made.b.ld;
    product.major_a = made.major_a;
    product.major_b = made.major_b;
    product.out_dtype = made.f32_out ? DType::f32 : DType::bf16;
    return product;
}

struct Result {
    double ms, cublas_ms, ratio;
};

/// `clocks`, where given, is read under the program's load after the measurement.
Result measure(const GemmCase& made, const Options& options, oracle::CublasLt& cublas, Clocks* clocks) {
    const int copies = std::max(1, static_cast<int>(kRotatedBytes / made.bytes()));
    std::vector<std::unique_ptr<DeviceBuffers>> buffers;
    std::vector<void*> outputs;
    std::vector<hopper::Launch> ours, theirs;
    for (int copy = 0; copy < copies; ++copy) {
        buffers.push_back(std::make_unique<DeviceBuffers>(made.buffers, static_cast<std::uint64_t>(copy) + 1));
        void* out = nullptr;
        CUDA_CHECK(cudaMalloc(&out, static_cast<std::size_t>(made.shape.m * made.shape.n * (made.f32_out ? 4 : 2))));
        outputs.push_back(out);
        ours.push_back(hopper::prepare(made.op, buffers.back()->memory()));
        theirs.push_back(cublas.product(bare_product(made, buffers.back()->memory(), out), kHeuristics));
    }

    Timer timer;
    const double once = timer.run(ours, 2);
    const int count = std::max(1, static_cast<int>(options.block * 1e3 / once) + 1);
    for (double spent = 0; spent < options.warm_up * 1e3;)
        spent += count * (timer.run(ours, count) + timer.run(theirs, count));
    std::vector<double> our_times, their_times, ratios;
    for (int block = 0; block < options.blocks; ++block) {
        our_times.push_back(timer.run(ours, count));
        their_times.push_back(timer.run(theirs, count));
        ratios.push_back(our_times.back() / their_times.back());
    }
    if (clocks != nullptr) {
        // Half a second of work is under way while they are read.
        for (int i = 0; i <= static_cast<int>(500 / once); ++i)
            ours[static_cast<std::size_t>(i) % ours.size()](nullptr);
        *clocks = current_clocks();
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    for (void* out : outputs) CUDA_CHECK(cudaFree(out));
    return {median(our_times), median(their_times), median(ratios)};
}

std::vector<Shape> shapes_of(const Options& options) {
    if (options.shapes.empty()) return preset(options.preset);
    std::vector<Shape> shapes;
    for (const std::string& given : options.shapes) {
        char program[64];
        long long m = 0, n = 0, k = 0;
        require(std::sscanf(given.c_str(), "%63[^:]:%lld:%lld:%lld", program, &m, &n, &k) == 4, "--shape ", given,
                " is not PROGRAM:M:N:K");
        shapes.push_back({program, m, n, k});
    }
    return shapes;
}

/// Prints every tile configuration's time for a shape, in turns with cuBLAS, and the quickest.
void tune(const Shape& shape, const Options& options, oracle::CublasLt& cublas) {
    const GemmCase made = make_case(shape);
    const DeviceBuffers buffers(made.buffers, 1);
    std::vector<Candidate> all = candidates(made, buffers.memory());
    all.push_back({"cuBLAS", cublas.product(bare_product(made, buffers.memory(),
                                                         buffers.memory().address(made.buffers.back().view)),
                                            kHeuristics)});
    Timer timer;
    const int count = std::max(1, static_cast<int>(options.block * 1e3 / timer.run({all[0].launch}, 2)) + 1);
    std::vector<std::vector<double>> times(all.size());
    for (double spent = 0; spent < options.warm_up * 1e3;) spent += count * timer.run({all[0].launch}, count);
    for (int block = 0; block < options.blocks; ++block)
        for (std::size_t i = 0; i < all.size(); ++i) times[i].push_back(timer.run({all[i].launch}, count));
    std::size_t best = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const double ms = median(times[i]);
        if (ms < median(times[best])) best = i;
        std::printf("%lld x %lld x %lld  %-20s %8.4f ms  %6.1f TFLOP/s\n", static_cast<long long>(shape.m),
                    static_cast<long long>(shape.n), static_cast<long long>(shape.k), all[i].name, ms,
                    made.flops() / ms * 1e-9);
    }
    std::printf("%lld x %lld x %lld  quickest: %s\n", static_cast<long long>(shape.m), static_cast<long long>(shape.n),
                static_cast<long long>(shape.k), all[best].name);
    std::fflush(stdout);
}

int run(int argc, char** argv) {
    Options options;
    CLI::App app("GEMM programs against cuBLASLt");
    app.add_option("--preset", options.preset, "llama1b, llama8b or square");
    app.add_option("--shape", options.shapes, "PROGRAM:M:N:K, instead of a preset");
    app.add_option("--json", options.json, "write the records to this file");
    app.add_option("--warm-up", options.warm_up, "seconds per shape");
    app.add_option("--block", options.block, "seconds per block");
    app.add_option("--blocks", options.blocks, "pairs of blocks");
    app.add_flag("--tune", options.tune, "compare tile configurations of the plain products instead");
    CLI11_PARSE(app, argc, argv);

    oracle::CublasLt cublas;
    Clocks clocks;
    if (options.tune) {
        for (const Shape& shape : shapes_of(options))
            if (shape.program == "Linear") tune(shape, options, cublas);
        return 0;
    }
    nlohmann::json records = nlohmann::json::array();
    std::printf("%-24s %7s %7s %7s | %8s | %7s | %6s | %9s | %s\n", "program", "M", "N", "K", "ms", "TFLOP/s", "GB/s",
                "cuBLAS ms", "ratio");
    for (const Shape& shape : shapes_of(options)) {
        // As the trainer runs them: gradients of the residual stream accumulate, but for the head's.
        const GemmCase made =
            make_case(shape, {.accumulate = shape.program == "LinearRmsBackward" && shape.k < 100000});
        const bool first = records.empty() && !options.json.empty();
        const Result result = measure(made, options, cublas, first ? &clocks : nullptr);
        const double tflops = made.flops() / result.ms * 1e-9, gbps = made.bytes() / result.ms * 1e-6;
        std::printf("%-24s %7lld %7lld %7lld | %8.4f | %7.1f | %6.0f | %9.4f | %.3f\n", shape.program.c_str(),
                    static_cast<long long>(shape.m), static_cast<long long>(shape.n), static_cast<long long>(shape.k),
                    result.ms, tflops, gbps, result.cublas_ms, result.ratio);
        std::fflush(stdout);
        const char* layout = made.major_a == hopper::Major::mn ? "NT" : made.major_b == hopper::Major::mn ? "NN" : "TN";
        records.push_back({{"program", shape.program},
                           {"M", shape.m},
                           {"N", shape.n},
                           {"K", shape.k},
                           {"layout", layout},
                           {"ms", result.ms},
                           {"tflops", tflops},
                           {"gbps", gbps},
                           {"cublas_ms", result.cublas_ms},
                           {"ratio", result.ratio}});
    }
    if (!options.json.empty()) {
        std::ofstream file(options.json);
        file << nlohmann::json{{"header", result_header(argc, argv, clocks)}, {"records", records}}.dump(1) << "\n";
        require(file.good(), "cannot write ", options.json);
    }
    return 0;
}

}  // namespace

}  // namespace coda::bench

int main(int argc, char** argv) {
    try {
        return coda::bench::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "coda_bench: %s\n", error.what());
        return 1;
    }
}
