// coda_bench float8: what FP8 gains over bf16, GEMM by GEMM, at the shapes of llama1b's layers.
//
// Per shape, in turns in one process: our bf16 program, cuBLASLt in bf16, our FP8 program without promotion and with it
// every 512 and 256 elements of K, cuBLASLt in FP8 with fast accumulation and without. First every FP8 side runs once
// on poisoned results, and the oracle judges it; then each takes its fastest tile; then all warm up together, and
// blocks of launches alternate. Times are medians of the blocks. Operands are larger than L2.
//
// And the programs of these GEMMs, in bf16 and in FP8 and beside cuBLASLt's bare FP8 GEMM.
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cases/device_buffers.h"
#include "kernels/cases/op_cases.h"
#include "kernels/hopper/run.h"
#include "kernels/oracle/oracle.h"
#include "kernels/oracle/tolerance.h"
#include "tools/bench/commands.h"
#include "tools/bench/gemm_measure.h"
#include "tools/bench/timer.h"

namespace coda::bench {

namespace {

constexpr std::int64_t kOracleBytes = std::int64_t{3} << 30;
constexpr int kHeuristics = 8;  // of cuBLASLt; the fastest of them is measured
constexpr int kTrialLaunches = 4;

struct Options {
    std::int64_t tokens = 32768;
    Turns turns{.warm_up = 1.0, .block = 0.15, .blocks = 5};
    std::string only;

    /// Whether --only leaves in this row of that table, "programs" or "products".
    bool wants(const char* table, const std::string& row) const { return only.empty() || only == table || only == row; }
};

struct Side {
    std::string name;
    hopper::Launch launch;
    double ms = 0;
};

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

std::string tile_name(const hopper::TileConfig& tile) {
    const bool pingpong = tile.specialization == hopper::WarpSpecialization::pingpong;
    return text(tile.m, "x", tile.n, pingpong ? " pingpong " : " cooperative ", tile.cluster_m, "x", tile.cluster_n);
}

class Bench {
  public:
    explicit Bench(const Options& options) : options_(options), oracle_(kOracleBytes) {}

    /// The op on the loaded buffers by its fastest tile. FP8 ops are judged first.
    Side ours(const std::string& name, const Loaded& loaded, const Op& op) {
        if (name != "bf16") judge(name, loaded, op);
        const auto tiles = hopper::choose(op).candidates;
        Side best;
        for (std::size_t i = 0; i < tiles.size(); ++i) {
            hopper::Request request;
            request.candidate = static_cast<int>(i);
            const hopper::Launch launch = hopper::prepare(op, loaded.memory(), request);
            timer_.run({launch}, 1);
            const double ms = timer_.run({launch}, kTrialLaunches);
            if (name != "bf16")
                std::printf("    %-22s %-26s %8.4f ms\n", name.c_str(), tile_name(tiles[i]).c_str(), ms);
            if (best.name.empty() || ms < best.ms) best = {name, launch, ms};
        }
        return best;
    }

    Side cublas(const std::string& name, const Loaded& loaded, void* out, bool fast) {
        oracle::Product product = bare_product(loaded.made, loaded.memory(), out);
        product.fast_accumulation = fast;
        return {name, cublas_.product(product, kHeuristics), 0};
    }

    /// Measures the sides in turns.
    void measure(std::vector<Side>& sides) {
        std::vector<int> counts;
        for (Side& side : sides) {
            timer_.run({side.launch}, 2);
            counts.push_back(static_cast<int>(options_.turns.block * 1e3 / timer_.run({side.launch}, 3)) + 1);
        }
        for (double spent = 0; spent < options_.turns.warm_up * 1e3;)
            for (std::size_t i = 0; i < sides.size(); ++i)
                spent += counts[i] * timer_.run({sides[i].launch}, counts[i]);
        std::vector<std::vector<double>> times(sides.size());
        for (int block = 0; block < options_.turns.blocks; ++block)
            for (std::size_t i = 0; i < sides.size(); ++i) times[i].push_back(timer_.run({sides[i].launch}, counts[i]));
        for (std::size_t i = 0; i < sides.size(); ++i) sides[i].ms = median(times[i]);
    }

    bool right() const { return wrong_ == 0; }

  private:
    void judge(const std::string& name, const Loaded& loaded, const Op& op) {
        loaded.poison();
        const auto before = oracle_.capture(op, loaded.memory());
        hopper::prepare(op, loaded.memory())(nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
        const oracle::Report report = oracle_.check(op, loaded.memory(), before);
        std::printf("    %s\n", oracle::line_of(name, op, report).c_str());
        if (!oracle::within_tolerance(op, report)) ++wrong_;
    }

    const Options& options_;
    oracle::Oracle oracle_;
    oracle::CublasLt cublas_;
    Timer timer_;
    int wrong_ = 0;
};

/// A GEMM of a layer: the name of its step, its bf16 program, the FP8 form's promotion in training.
struct Row {
    const char *name, *program;
    std::int64_t m, n, k;
    std::int64_t promotion;
};

std::vector<Row> rows_of(std::int64_t m) {
    constexpr std::int64_t d = 2048, f = 8192, q = 3072;
    return {{"qkv", "Linear", m, q, d, 0},
            {"attn_out", "Linear", m, d, d, 0},
            {"gate_up", "Linear", m, 2 * f, d, 0},
            {"down", "Linear", m, d, f, 0},
            {"qkv_dgrad", "LinearDgrad", m, d, q, 0},
            {"attn_out_dgrad", "LinearDgrad", m, d, d, 0},
            {"gate_up_dgrad", "LinearDgrad", m, d, 2 * f, 512},
            {"down_dgrad", "LinearDgrad", m, f, d, 0},
            {"qkv_wgrad", "WeightGradient", q, d, m, 256},
            {"attn_out_wgrad", "WeightGradient", d, d, m, 256},
            {"gate_up_wgrad", "WeightGradient", 2 * f, d, m, 256},
            {"down_wgrad", "WeightGradient", d, f, m, 256}};
}

struct DeviceBytes {
    void* data = nullptr;
    explicit DeviceBytes(std::size_t bytes) { CUDA_CHECK(cudaMalloc(&data, bytes)); }
    ~DeviceBytes() { cudaFree(data); }
    DeviceBytes(const DeviceBytes&) = delete;
    DeviceBytes& operator=(const DeviceBytes&) = delete;
};

constexpr std::array<std::int64_t, 3> kPromotions{0, 512, 256};

/// bf16, cuBLASLt bf16, FP8 with each of kPromotions, cuBLASLt FP8 fast, accurate.
std::vector<Side> products(Bench& bench, const Row& row) {
    const bool gradient = std::string(row.program) == "WeightGradient";
    const Loaded wide(make_case({row.program, row.m, row.n, row.k}));
    const char* f8_program = gradient ? "WeightGradientF8" : "LinearF8";
    const Loaded narrow(make_case({f8_program, row.m, row.n, row.k}));
    const DeviceBytes out(static_cast<std::size_t>(row.m * row.n * (gradient ? 4 : 2)));

    std::vector<Side> sides;
    sides.push_back(bench.ours("bf16", wide, wide.made.op));
    sides.push_back(bench.cublas("cuBLAS bf16", wide, out.data, false));
    for (const std::int64_t promotion : kPromotions) {
        Op op = narrow.made.op;
        std::visit(
            [&](auto& concrete) {
                if constexpr (requires { concrete.promotion; }) concrete.promotion = promotion;
            },
            op);
        sides.push_back(bench.ours(text("f8 promotion ", promotion), narrow, op));
    }
    sides.push_back(bench.cublas("cuBLAS f8 fast", narrow, out.data, true));
    sides.push_back(bench.cublas("cuBLAS f8", narrow, out.data, false));
    bench.measure(sides);
    return sides;
}

void run_products(Bench& bench, const Options& options) {
    std::string table;
    double bf16 = 0, cublas_bf16 = 0, f8 = 0, cublas_f8 = 0;
    for (const Row& row : rows_of(options.tokens)) {
        if (!options.wants("products", row.name)) continue;
        std::printf("%s: M %lld N %lld K %lld\n", row.name, static_cast<long long>(row.m),
                    static_cast<long long>(row.n), static_cast<long long>(row.k));
        const std::vector<Side> sides = products(bench, row);
        const bool forward = std::string(row.program) == "Linear";
        const auto trained = std::find(kPromotions.begin(), kPromotions.end(), row.promotion) - kPromotions.begin();
        const double chosen = sides[static_cast<std::size_t>(2 + trained)].ms, rival = sides[forward ? 5 : 6].ms;
        bf16 += sides[0].ms;
        cublas_bf16 += sides[1].ms;
        f8 += chosen;
        cublas_f8 += rival;
        char line[256];
        std::snprintf(
            line, sizeof line, "%-15s | %7.4f %7.4f | %7.4f %7.4f %7.4f | %7.4f %7.4f | %6.0f %6.0f | %5.2f %6.3f\n",
            row.name, sides[0].ms, sides[1].ms, sides[2].ms, sides[3].ms, sides[4].ms, sides[5].ms, sides[6].ms,
            2e-9 * static_cast<double>(row.m) * static_cast<double>(row.n) * static_cast<double>(row.k) / chosen,
            2e-9 * static_cast<double>(row.m) * static_cast<double>(row.n) * static_cast<double>(row.k) / rival,
            sides[0].ms / chosen, chosen / rival);
        table += line;
        std::printf("%s", line);
        std::fflush(stdout);
    }
    std::printf(
        "\nms                  bf16  cuBLAS |    f8 0  f8 512  f8 256 | cuBLAS f8 fast, not | TFLOP/s f8, cuBLAS | "
        "bf16 / "
        "f8, f8 / cuBLAS f8\n%s",
        table.c_str());
    std::printf("sum: bf16 %.4f (cuBLAS %.4f), f8 %.4f (cuBLAS %.4f): bf16 / f8 %.3f, f8 / cuBLAS f8 %.3f\n", bf16,
                cublas_bf16, f8, cublas_f8, bf16 / f8, f8 / cublas_f8);
    std::printf("f8 is promotion 512 in gate_up_dgrad, 256 in wgrads, else 0; cuBLAS f8 is fast forward alone\n\n");
}

/// A program of a layer, in bf16 and in FP8; whether it is one of the forward pass, which cuBLASLt may sum fast; what
/// its optional operands are, where it has them in FP8.
struct ProgramRow {
    const char *name, *wide, *narrow;
    std::int64_t m, n, k, promotion;
    bool forward = false;
    const char* optionals = "";
};

std::vector<ProgramRow> programs_of(std::int64_t m) {
    constexpr std::int64_t d = 2048, f = 8192, q = 3072;
    return {{"qkv", "LinearRstdRope", "LinearRopeF8", m, q, d, 0, true},
            {"attn_out", "LinearResidualRms", "LinearResidualRmsF8", m, d, d, 0, true},
            {"gate_up", "LinearRstdSwiglu", "LinearSwigluF8", m, 2 * f, d, 0, true},
            {"down", "LinearResidualRms", "LinearResidualRmsF8", m, d, f, 0, true},
            {"qkv_dgrad", "LinearRmsBackward", "LinearRmsBackwardF8", m, d, q, 0},
            {"qkv_dgrad", "LinearRmsBackward", "LinearRmsBackwardF8", m, d, q, 0, false, " with dx f8"},
            {"attn_out_dgrad", "LinearHeadDot", "LinearHeadDotF8", m, d, d, 0},
            {"gate_up_dgrad", "LinearRmsBackward", "LinearRmsBackwardF8", m, d, 2 * f, 512},
            {"gate_up_dgrad", "LinearRmsBackward", "LinearRmsBackwardF8", m, d, 2 * f, 512, false, " with dx f8"},
            {"down_dgrad", "LinearSwigluBackward", "LinearSwigluBackwardF8", m, f, d, 0}};
}

/// What of cuBLASLt's time in FP8 a program may take: its epilogue counts for more where K is short.
double bar_of(const ProgramRow& row) { return row.k >= 4096 ? 1.10 : 1.20; }

void run_programs(Bench& bench, const Options& options) {
    std::string table;
    for (const ProgramRow& row : programs_of(options.tokens)) {
        if (!options.wants("programs", row.name)) continue;
        const std::string name = text(row.name, row.optionals);
        std::printf("%s: %s, M %lld N %lld K %lld\n", name.c_str(), row.narrow, static_cast<long long>(row.m),
                    static_cast<long long>(row.n), static_cast<long long>(row.k));
        CaseOptions with{.accumulate = true, .promotion = row.promotion};
        const Loaded wide(make_case({row.wide, row.m, row.n, row.k}, with));
        with.optionals = *row.optionals != '\0';
        const Loaded narrow(make_case({row.narrow, row.m, row.n, row.k}, with));
        const DeviceBytes out(static_cast<std::size_t>(row.m * row.n * 2));
        std::vector<Side> sides;
        sides.push_back(bench.ours("bf16", wide, wide.made.op));
        sides.push_back(bench.ours("f8", narrow, narrow.made.op));
        sides.push_back(bench.cublas("cuBLAS f8", narrow, out.data, row.forward));
        bench.measure(sides);
        const double ratio = sides[1].ms / sides[2].ms;
        char line[256];
        std::snprintf(line, sizeof line, "%-24s | %7.4f %7.4f %7.4f | %5.3f | %5.3f (bar %.2f%s)\n", name.c_str(),
                      sides[0].ms, sides[1].ms, sides[2].ms, sides[1].ms / sides[0].ms, ratio, bar_of(row),
                      ratio <= bar_of(row) ? "" : ", missed");
        table += line;
        std::printf("%s", line);
        std::fflush(stdout);
    }
    std::printf(
        "\nprogram, ms                   bf16      f8 cuBLAS f8 | f8 / bf16 | f8 / cuBLAS f8, which is fast forward "
        "alone\n%s\n",
        table.c_str());
}

void run(const Options& options) {
    std::string known = "programs, products";
    bool found = options.only.empty() || options.only == "programs" || options.only == "products";
    const auto offer = [&](const char* row) {
        found = found || options.only == row;
        known += text(", ", row);
    };
    for (const Row& row : rows_of(options.tokens)) offer(row.name);
    require(found, "--only: there is no ", options.only, "; there are ", known);
    require(options.tokens > 0 && options.tokens % 16 == 0, "--tokens: ", options.tokens, " is not a multiple of 16");
    Bench bench(options);
    if (options.only != "products") run_programs(bench, options);
    if (options.only != "programs") run_products(bench, options);
    require(bench.right(), "float8: a result is beyond its tolerance; see BEYOND above");
}

}  // namespace

void add_float8(CLI::App& app) {
    CLI::App* command = app.add_subcommand("float8", "FP8 GEMMs of llama1b's layers against bf16 and cuBLASLt");
    auto options = std::make_shared<Options>();
    command->add_option("--tokens", options->tokens, "M of the layers, a multiple of 16");
    command->add_option("--only", options->only, "programs, products, or one row, such as gate_up_dgrad");
    command->add_option("--warm-up", options->turns.warm_up, "seconds per shape");
    command->add_option("--block", options->turns.block, "seconds per block");
    command->add_option("--blocks", options->turns.blocks, "blocks per side");
    command->callback([options] { run(*options); });
}

}  // namespace coda::bench
