// coda_bench_attention: forward and backward attention, ms and TFLOP/s of given shapes.
//
// Blocks of at least `--block` seconds of launches; the median block counts. FLOPs: forward 4 B H T² D / 2,
// backward 2.5 times that. Times of PyTorch's backends for the same shapes: torch_attention.py, which runs this program
// in between.
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/hopper/attention/attention.h"
#include "kernels/hopper/sm90/check.h"
#include "tools/bench/attention_case.h"
#include "tools/bench/device_buffers.h"

namespace coda::bench {

namespace {

struct Options {
    std::vector<std::string> shapes;  // B:T:H:Hk:D
    std::string json;
    double warm_up = 0.5, block = 0.1;  // seconds
    int blocks = 5;
};

double run_block(const hopper::Launch& launch, int count, cudaEvent_t begin, cudaEvent_t end) {
    CUDA_CHECK(cudaEventRecord(begin));
    for (int i = 0; i < count; ++i) launch(nullptr);
    CUDA_CHECK(cudaEventRecord(end));
    CUDA_CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    return milliseconds / count;
}

double measure(const hopper::Launch& launch, const Options& options) {
    cudaEvent_t begin{}, end{};
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    const double once = run_block(launch, 2, begin, end);
    const int count = std::max(1, static_cast<int>(options.block * 1e3 / once) + 1);
    for (double spent = 0; spent < options.warm_up * 1e3;) spent += count * run_block(launch, count, begin, end);
    std::vector<double> times;
    for (int block = 0; block < options.blocks; ++block) times.push_back(run_block(launch, count, begin, end));
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

std::vector<Buffer> contents(const AttentionCase& made, const AttentionCaseShape& shape) {
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < made.buffers.size(); ++i) {
        View view = made.buffers[i];
        Fill fill = Fill::nothing;
        double scale = 1;
        if (i == kQkv || i == kDout) fill = Fill::normal;
        if (i == kRope) fill = Fill::angles;
        if (i == kPositions || i == kDocStart) {
            fill = Fill::positions;
            scale = static_cast<double>(shape.seq_len);
        }
        if (i == kDelta) fill = Fill::normal;
        if (i == kScratch) {
            view.dtype = DType::f32;  // poison as numbers
            view.cols = view.ld = view.cols / 4;
        }
        buffers.push_back({"", view, fill, scale, Access::in});
    }
    return buffers;
}

int run(int argc, char** argv) {
    Options options;
    CLI::App app("Attention, forward and backward");
    app.add_option("--shape", options.shapes, "B:T:H:Hk:D")->required();
    app.add_option("--json", options.json, "write the records to this file");
    app.add_option("--warm-up", options.warm_up, "seconds per pass");
    app.add_option("--block", options.block, "seconds per block");
    app.add_option("--blocks", options.blocks, "blocks, of which the median counts");
    CLI11_PARSE(app, argc, argv);

    nlohmann::json records = nlohmann::json::array();
    for (const std::string& given : options.shapes) {
        long long b = 0, t = 0, h = 0, k = 0, d = 0;
        require(std::sscanf(given.c_str(), "%lld:%lld:%lld:%lld:%lld", &b, &t, &h, &k, &d) == 5, "--shape ", given,
                " is not B:T:H:Hk:D");
        const AttentionCaseShape shape{b, t, h, k, d, false};
        const AttentionCase made = make_attention(shape, kMixedBf16);
        const DeviceBuffers buffers(contents(made, shape), 1);
        const std::pair<const char*, hopper::Launch> passes[] = {
            {"forward", hopper::prepare_op(made.forward, buffers.memory())},
            {"backward", hopper::prepare_op(made.backward, buffers.memory())},
            {"backward rope", hopper::prepare_op(made.rope_backward, buffers.memory())}};
        for (const auto& [name, launch] : passes) {
            const double ms = measure(launch, options);
            const double flops = shape.forward_flops() * (name == passes[0].first ? 1 : 2.5);
            std::printf("%-14s B%lld T%lld H%lld/%lld D%lld | %8.4f ms | %6.1f TFLOP/s\n", name, b, t, h, k, d, ms,
                        flops / ms * 1e-9);
            std::fflush(stdout);
            records.push_back({{"pass", name},
                               {"B", b},
                               {"T", t},
                               {"H", h},
                               {"Hkv", k},
                               {"D", d},
                               {"deterministic", true},
                               {"ms", ms},
                               {"tflops", flops / ms * 1e-9}});
        }
    }
    if (!options.json.empty()) {
        std::ofstream file(options.json);
        file << records.dump(1) << "\n";
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
        std::fprintf(stderr, "coda_bench_attention: %s\n", error.what());
        return 1;
    }
}
