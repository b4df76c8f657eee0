// coda_bench fp8: what FP8 gains over bf16, program by program, at the shapes of llama1b's layers.
//
// Per row: our bf16 program, our FP8 program, and cuBLASLt's bare FP8 GEMM of the same shape. The
// FP8 program first runs once on poisoned results, and the oracle judges it; then ours take their fastest tiles, which
// training does not always take. Then FP8 and cuBLASLt run in turns, and after that FP8 and bf16: after a warm-up of
// both, blocks of 12 launches or more alternate. Times are medians of the blocks, a ratio is the median of the pairs'
// ratios, its spread goes from the lowest to the highest of them. Operands are larger than L2. NOTE: the power limit
// gives a block clocks by what ran before it. So a third side in the round is worth 1 to 3%, and in longer blocks a
// side pays more for its own power.
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cases/device_buffers.h"
#include "kernels/cases/op_cases.h"
#include "kernels/hopper/run.h"
#include "kernels/oracle/oracle.h"
#include "kernels/oracle/tolerance.h"
#include "src/core/median.h"
#include "tools/bench/commands.h"
#include "tools/bench/gemm_measure.h"
#include "tools/bench/result_header.h"
#include "tools/bench/timer.h"

namespace coda::bench {

namespace {

constexpr std::int64_t kOracleBytes = std::int64_t{3} << 30;
constexpr int kHeuristics = 8;  // of cuBLASLt; the fastest of them is measured
constexpr int kTrialLaunches = 4;
constexpr int kLaunchesPerBlock = 12;  // at least

struct Options {
    std::int64_t tokens = 32768;
    Turns turns;
    std::string only, json;
    bool overwrite = false;
};

struct Side {
    hopper::Launch launch;
    double trial_ms = 0;
};

/// FP8 and another side, in turns.
struct Pair {
    double f8_ms, other_ms;
    double ratio, lowest, highest;
};

/// A GEMM of a layer: its op, and the program of bf16 training; whether it is one of the forward pass, which cuBLASLt
/// may sum fast; whether it stores FP8 codes of dx too.
struct Row {
    const char *name, *op, *wide;
    std::int64_t m, n, k;
    bool forward = false, dx_f8 = false;

    std::string title() const { return text(name, dx_f8 ? " with dx f8" : ""); }
    std::string narrow() const { return text(op, " f8"); }
    bool is_wgrad() const { return std::string(op) == "WeightGradient"; }
    std::int64_t promotion() const { return f8_promotion(k, is_wgrad() ? SumOver::tokens : SumOver::features); }
};

std::vector<Row> rows_of(std::int64_t m) {
    constexpr std::int64_t d = 2048, f = 8192, q = 3072;
    return {{"qkv", "LinearRope", "LinearRope rstd", m, q, d, true},
            {"attn_out", "LinearResidualRms", "LinearResidualRms", m, d, d, true},
            {"gate_up", "LinearSwiglu", "LinearSwiglu rstd", m, 2 * f, d, true},
            {"down", "LinearResidualRms", "LinearResidualRms", m, d, f, true},
            {"qkv_dgrad", "LinearRmsBackward", "LinearRmsBackward", m, d, q},
            {"qkv_dgrad", "LinearRmsBackward", "LinearRmsBackward", m, d, q, false, true},
            {"attn_out_dgrad", "LinearHeadDot", "LinearHeadDot", m, d, d},
            {"gate_up_dgrad", "LinearRmsBackward", "LinearRmsBackward", m, d, 2 * f},
            {"gate_up_dgrad", "LinearRmsBackward", "LinearRmsBackward", m, d, 2 * f, false, true},
            {"down_dgrad", "LinearSwigluBackward", "LinearSwigluBackward", m, f, d},
            {"qkv_wgrad", "WeightGradient", "WeightGradient", q, d, m},
            {"attn_out_wgrad", "WeightGradient", "WeightGradient", d, d, m},
            {"gate_up_wgrad", "WeightGradient", "WeightGradient", 2 * f, d, m},
            {"down_wgrad", "WeightGradient", "WeightGradient", d, f, m}};
}

/// A case on the device, its output poisoned.
struct Loaded {
    GemmCase made;
    std::unique_ptr<cases::DeviceBuffers> buffers;

    explicit Loaded(GemmCase given)
        : made(std::move(given)), buffers(std::make_unique<cases::DeviceBuffers>(made.buffers, 1)) {}
    const Memory& memory() const { return buffers->memory(); }

    void poison() const {
        for (const cases::Buffer& buffer : made.buffers)
            if (buffer.access == Access::out)
                CUDA_CHECK(cudaMemset(memory().address(buffer.view), 0xff,
                                      static_cast<std::size_t>(buffer.view.span_bytes())));
    }
};

struct DeviceBytes {
    void* data = nullptr;
    explicit DeviceBytes(std::size_t bytes) { CUDA_CHECK(cudaMalloc(&data, bytes)); }
    ~DeviceBytes() { cudaFree(data); }
    DeviceBytes(const DeviceBytes&) = delete;
    DeviceBytes& operator=(const DeviceBytes&) = delete;
};

std::string tile_name(const hopper::TileConfig& tile) {
    const bool pingpong = tile.specialization == hopper::WarpSpecialization::pingpong;
    return text(tile.m, "x", tile.n, pingpong ? " pingpong " : " cooperative ", tile.cluster_m, "x", tile.cluster_n);
}

class Bench {
  public:
    explicit Bench(const Options& options) : options_(options), oracle_(kOracleBytes) {}

    /// FP8 compared with cuBLASLt, and with bf16.
    struct Pairs {
        Pair cublas, bf16;
    };
    Pairs run(const Row& row) {
        CaseOptions with{.accumulate = !row.is_wgrad()};
        const Loaded wide(make_case({row.wide, row.m, row.n, row.k}, with));
        with.optionals = row.dx_f8;
        const Loaded narrow(make_case({row.narrow(), row.m, row.n, row.k}, with));
        const DeviceBytes out(static_cast<std::size_t>(row.m * row.n * (narrow.made.f32_out ? 4 : 2)));
        judge(narrow);
        const Side f8 = fastest("f8", narrow);
        const Pairs pairs{.cublas = in_turns(f8, cublas(narrow, out.data, row.forward)),
                          .bf16 = in_turns(f8, fastest("bf16", wide))};
        if (!options_.json.empty()) record(row, narrow.made, f8, pairs);
        return pairs;
    }

    bool right() const { return wrong_ == 0; }
    void write_records() const {
        if (!options_.json.empty()) write_run(options_.json, clocks_, records_);
    }

  private:
    void judge(const Loaded& loaded) {
        const Op& op = loaded.made.op;
        loaded.poison();
        const auto before = oracle_.capture(op, loaded.memory());
        hopper::prepare(op, loaded.memory())(nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
        const oracle::Report report = oracle_.check(op, loaded.memory(), before);
        std::printf("    %s\n", oracle::line_of("f8", op, report).c_str());
        if (!oracle::within_tolerance(op, report)) ++wrong_;
    }

    Side fastest(const char* name, const Loaded& loaded) {
        const Op& op = loaded.made.op;
        const auto tiles = hopper::choose(op).candidates;
        Side best;
        for (std::size_t i = 0; i < tiles.size(); ++i) {
            hopper::Request request;
            request.candidate = static_cast<int>(i);
            const hopper::Launch launch = hopper::prepare(op, loaded.memory(), request);
            timer_.run({launch}, 1);
            const double ms = timer_.run({launch}, kTrialLaunches);
            std::printf("    %-4s %-26s %8.4f ms\n", name, tile_name(tiles[i]).c_str(), ms);
            if (i == 0 || ms < best.trial_ms) best = {launch, ms};
        }
        return best;
    }

    Side cublas(const Loaded& loaded, void* out, bool fast) {
        oracle::Product product = bare_product(loaded.made, loaded.memory(), out);
        product.fast_accumulation = fast;
        Side side{cublas_.product(product, kHeuristics)};
        timer_.run({side.launch}, 1);
        side.trial_ms = timer_.run({side.launch}, kTrialLaunches);
        return side;
    }

    Pair in_turns(const Side& f8, const Side& other) {
        const auto block = [&](const Side& side) {
            const int count = static_cast<int>(options_.turns.block * 1e3 / side.trial_ms) + 1;
            return timer_.run({side.launch}, std::max(kLaunchesPerBlock, count));
        };
        const double blocks = options_.turns.warm_up / (2 * options_.turns.block);
        for (int i = 0; i < blocks; ++i) {
            block(f8);
            block(other);
        }
        std::vector<double> f8_ms, other_ms, ratios;
        for (int i = 0; i < options_.turns.blocks; ++i) {
            f8_ms.push_back(block(f8));
            other_ms.push_back(block(other));
            ratios.push_back(f8_ms.back() / other_ms.back());
        }
        return {median_of(f8_ms), median_of(other_ms), median_of(ratios), *std::ranges::min_element(ratios),
                *std::ranges::max_element(ratios)};
    }

    void record(const Row& row, const GemmCase& made, const Side& f8, const Pairs& pairs) {
        if (records_.empty()) {
            for (int i = 0; i < 500 / f8.trial_ms; ++i) f8.launch(nullptr);
            clocks_ = current_clocks();
            CUDA_CHECK(cudaDeviceSynchronize());
        }
        const double ms = pairs.cublas.f8_ms;
        nlohmann::json record{{"program", row.op},
                              {"layout", "TN"},
                              {"M", row.m},
                              {"N", row.n},
                              {"K", row.k},
                              {"precision", "fp8"},
                              {"promotion", row.promotion()},
                              {"ms", ms},
                              {"cublas_ms", pairs.cublas.other_ms},
                              {"ratio", pairs.cublas.ratio},
                              {"spread", {pairs.cublas.lowest, pairs.cublas.highest}},
                              {"bf16_ms", pairs.bf16.other_ms},
                              {"ratio_bf16", pairs.bf16.ratio},
                              {"tflops", made.flops() / ms * 1e-9},
                              {"gbps", made.bytes() / ms * 1e-6}};
        if (row.dx_f8) record["dx_f8"] = true;
        records_.push_back(std::move(record));
    }

    const Options& options_;
    oracle::Oracle oracle_;
    oracle::CublasLt cublas_;
    Timer timer_;
    int wrong_ = 0;
    Clocks clocks_;
    nlohmann::json records_ = nlohmann::json::array();
};

/// What of cuBLASLt's time in FP8 a program may take: its epilogue counts for more where K is short.
double bar_of(const Row& row) { return row.k >= 4096 ? 1.10 : 1.20; }

void run(const Options& options) {
    const std::vector<Row> rows = rows_of(options.tokens);
    std::string known;
    bool found = options.only.empty();
    for (const Row& row : rows) {
        found = found || options.only == row.name;
        if (!row.dx_f8) known += text(known.empty() ? "" : ", ", row.name);
    }
    require(found, "--only: there is no ", options.only, "; there are ", known);
    require(options.tokens > 0 && options.tokens % 16 == 0, "--tokens: ", options.tokens, " is not a multiple of 16");
    require_outputs({{"--json", options.json}}, options.overwrite);
    Bench bench(options);
    std::string lines;
    double bf16 = 0, f8 = 0, cublas = 0;
    for (const Row& row : rows) {
        if (!options.only.empty() && options.only != row.name) continue;
        std::printf("%s: %s, M %lld N %lld K %lld\n", row.title().c_str(), row.narrow().c_str(),
                    static_cast<long long>(row.m), static_cast<long long>(row.n), static_cast<long long>(row.k));
        const Bench::Pairs pairs = bench.run(row);
        char line[256];
        std::snprintf(line, sizeof line, "%-24s | %7.4f %7.4f %7.4f | %5.3f | %5.3f (%5.3f to %5.3f)",
                      row.title().c_str(), pairs.bf16.other_ms, pairs.cublas.f8_ms, pairs.cublas.other_ms,
                      pairs.bf16.ratio, pairs.cublas.ratio, pairs.cublas.lowest, pairs.cublas.highest);
        lines += line;
        if (!row.is_wgrad()) {
            std::snprintf(line, sizeof line, ", bar %.2f%s", bar_of(row),
                          pairs.cublas.ratio <= bar_of(row) ? "" : ": missed");
            lines += line;
        }
        lines += '\n';
        bf16 += pairs.bf16.other_ms;
        f8 += pairs.bf16.f8_ms;
        cublas += pairs.cublas.other_ms;
        std::fflush(stdout);
    }
    std::printf(
        "\nms                          bf16      f8 cuBLAS f8 | f8 / bf16 | f8 / cuBLAS f8, which is fast only "
        "in forward\n"
        "%ssum: bf16 %.4f, f8 %.4f, cuBLAS f8 %.4f: bf16 / f8 %.3f\n\n",
        lines.c_str(), bf16, f8, cublas, bf16 / f8);
    require(bench.right(), "fp8: a result is beyond its tolerance; see BEYOND above");
    bench.write_records();
}

}  // namespace

void add_f8(CLI::App& app) {
    CLI::App* command = app.add_subcommand("fp8", "FP8 GEMMs of llama1b against bf16 and cuBLASLt");
    auto options = std::make_shared<Options>();
    command->add_option("--tokens", options->tokens, "M of the layers, a multiple of 16");
    command->add_option("--only", options->only, "one GEMM, such as gate_up_dgrad");
    command->add_option("--json", options->json, "write the records to this file, which must be new");
    command->add_flag("--overwrite", options->overwrite, "let --json replace a file of this name");
    command->add_option("--warm-up", options->turns.warm_up, "seconds per pair of sides");
    command->add_option("--block", options->turns.block, "seconds per block");
    command->add_option("--blocks", options->turns.blocks, "blocks per side");
    command->callback([options] { run(*options); });
}

}  // namespace coda::bench
