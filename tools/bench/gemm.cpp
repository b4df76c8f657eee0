// coda_bench gemm: every GEMM program of a preset against cuBLASLt's bare GEMM of the same shape and output type.
//
// Both run in one process in turns. After a warm-up of at least two seconds come blocks of at least 100 ms and 12
// launches each. Program and cuBLAS alternate, so that both see the same clocks. The ratio is the median of the paired
// ratios; the spread goes from the lowest to the highest of them. Data is normal; buffers are rotated so that a launch
// does not find its operands in L2.
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/cases/op_cases.h"
#include "kernels/hopper/sm90/check.h"
#include "tools/bench/commands.h"
#include "tools/bench/gemm_measure.h"
#include "tools/bench/gemm_tune.h"
#include "tools/bench/result_header.h"

namespace coda::bench {

namespace {

struct Options {
    std::string preset = "llama1b";
    std::vector<std::string> shapes;  // PROGRAM:M:N:K instead of a preset
    std::string json;
    Turns turns;
    bool tune = false, overwrite = false;
};

/// `clocks`, if given, is read under the program's load after the measurement.
Measured measure(const GemmCase& made, const Options& options, oracle::CublasLt& cublas, Clocks* clocks) {
    const Contest contest(made, cublas);
    const std::vector<hopper::Launch> launches = contest.prepare();
    contest.warm_up(launches, options.turns);
    const Measured result = contest.measure({launches}, options.turns).front();
    if (clocks != nullptr) {
        contest.enqueue(launches, 0.5);
        *clocks = current_clocks();
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    return result;
}

/// The case as the trainer runs it. Gradients of the residual stream accumulate, except the head's, which has its
/// factors and n. Weight gradients come without the factors of their columns.
GemmCase trained_case(const Shape& shape) {
    constexpr std::int64_t kSmallestVocabulary = 32768;  // larger than any layer's K
    const bool norm = shape.program == "LinearRmsBackward", head = shape.k >= kSmallestVocabulary;
    return make_case(shape, {.accumulate = norm && !head, .optionals = norm && head});
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

void run(const Options& options) {
    require_outputs({{"--json", options.json}}, options.overwrite);
    oracle::CublasLt cublas;
    Clocks clocks;
    if (options.tune) {
        for (const Shape& shape : shapes_of(options)) tune(trained_case(shape), options.turns, cublas);
        return;
    }
    nlohmann::json records = nlohmann::json::array();
    std::printf("%-24s %7s %7s %7s | %8s | %7s | %6s | %9s | %s\n", "program", "M", "N", "K", "ms", "TFLOP/s", "GB/s",
                "cuBLAS ms", "ratio");
    for (const Shape& shape : shapes_of(options)) {
        const GemmCase made = trained_case(shape);
        const bool first = records.empty() && !options.json.empty();
        const Measured result = measure(made, options, cublas, first ? &clocks : nullptr);
        const double tflops = made.flops() / result.ms * 1e-9, gbps = made.bytes() / result.ms * 1e-6;
        std::printf("%-24s %7lld %7lld %7lld | %8.4f | %7.1f | %6.0f | %9.4f | %.3f%s\n", shape.program.c_str(),
                    static_cast<long long>(shape.m), static_cast<long long>(shape.n), static_cast<long long>(shape.k),
                    result.ms, tflops, gbps, result.cublas_ms, result.ratio, energy_column(result).c_str());
        std::fflush(stdout);
        const char* layout = made.major_a == hopper::Major::mn ? "NT" : made.major_b == hopper::Major::mn ? "NN" : "TN";
        records.push_back({{"program", shape.program},
                           {"M", shape.m},
                           {"N", shape.n},
                           {"K", shape.k},
                           {"layout", layout},
                           {"precision", "bf16"},
                           {"ms", result.ms},
                           {"tflops", tflops},
                           {"gbps", gbps},
                           {"cublas_ms", result.cublas_ms},
                           {"ratio", result.ratio},
                           {"spread", {result.lowest_ratio, result.highest_ratio}}});
    }
    if (!options.json.empty()) write_run(options.json, clocks, records);
}

}  // namespace

void add_gemm(CLI::App& app) {
    CLI::App* command = app.add_subcommand("gemm", "GEMM programs against cuBLASLt");
    auto options = std::make_shared<Options>();
    command->add_option("--preset", options->preset, "llama1b, llama8b or square");
    command->add_option("--shape", options->shapes,
                        "PROGRAM:M:N:K, instead of a preset, such as 'LinearRope rstd:32768:3072:2048'");
    command->add_option("--json", options->json, "write the records to this file, which must be new");
    command->add_flag("--overwrite", options->overwrite, "let --json replace a file of this name");
    command->add_option("--warm-up", options->turns.warm_up, "seconds per shape");
    command->add_option("--block", options->turns.block, "seconds per block");
    command->add_option("--blocks", options->turns.blocks, "pairs of blocks");
    command->add_flag("--tune", options->tune,
                      "search each shape's tile, warp specialization, cluster, parts of K and raster instead");
    command->callback([options] { run(*options); });
}

}  // namespace coda::bench
