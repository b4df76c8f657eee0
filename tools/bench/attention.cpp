// coda_bench attention: forward and backward attention of given shapes: ms, TFLOP/s, bytes.
//
// After a warm-up, the forms of a pass take turns, one block of launches each; the median block counts. FLOPs: forward
// 4 B H T² D / 2, backward 2.5 times that, in every form; with documents or a window the share that is not masked.
// Bytes: every operand once (kernels/cost.h). A backward pass includes all of its kernels: row statistics, gradients,
// finished dQ. A row with documents or a window also has the time per product of a query and a key that it sees, over
// that of the shape without. torch_attention.py runs this program in turns with PyTorch's backends: it has their times
// for the same shapes, and the errors of both.
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "kernels/cases/device_buffers.h"
#include "kernels/cost.h"
#include "kernels/hopper/run.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/ops/attention/case.h"
#include "src/core/median.h"
#include "src/io/files.h"
#include "tools/bench/commands.h"
#include "tools/bench/result_header.h"

namespace coda::bench {

using namespace cases;

namespace {

constexpr AttentionCaseShape kShapes[] = {{.batch = 4, .seq_len = 8192, .heads = 32, .kv_heads = 8, .head_dim = 64},
                                          {.batch = 16, .seq_len = 2048, .heads = 32, .kv_heads = 8, .head_dim = 64},
                                          {.batch = 2, .seq_len = 8192, .heads = 32, .kv_heads = 8, .head_dim = 128},
                                          {.batch = 8, .seq_len = 2048, .heads = 32, .kv_heads = 8, .head_dim = 128}};

constexpr AttentionCaseShape kWindowShape{.batch = 2, .seq_len = 16384, .heads = 32, .kv_heads = 8, .head_dim = 128};
constexpr std::int64_t kWindow = 4096;  // as mistral_7b trains

constexpr std::int64_t kDocuments[] = {500, 2000};  // mean lengths

constexpr int kLaunchesPerBlock = 12;  // at least

struct Options {
    AttentionCaseShape shape = kShapes[0];
    std::vector<std::int64_t> documents;  // mean lengths
    std::int64_t window = 0;
    bool shape_given = false, overwrite = false;
    std::string json, inputs, outputs, starts;
    double warm_up = 1.5, block = 0.1;  // seconds
    int blocks = 5;
};

struct Pass {
    const char* name;
    Op op;
    hopper::Launch launch;
    int count = 0;  // launches per block
    std::vector<double> times;

    double median() const { return median_of(times); }
};

double run_block(const hopper::Launch& launch, int count, cudaEvent_t begin, cudaEvent_t end) {
    CUDA_CHECK(cudaEventRecord(begin));
    for (int i = 0; i < count; ++i) launch(nullptr);
    CUDA_CHECK(cudaEventRecord(end));
    CUDA_CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    return milliseconds / static_cast<float>(count);
}

void measure(std::span<Pass> passes, const Options& options) {
    cudaEvent_t begin{}, end{};
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    for (Pass& pass : passes)
        pass.count = std::max(kLaunchesPerBlock,
                              static_cast<int>(options.block * 1e3 / run_block(pass.launch, 2, begin, end)) + 1);
    for (double spent = 0; spent < options.warm_up * 1e3;)
        for (const Pass& pass : passes) spent += pass.count * run_block(pass.launch, pass.count, begin, end);
    for (int block = 0; block < options.blocks; ++block)
        for (Pass& pass : passes) pass.times.push_back(run_block(pass.launch, pass.count, begin, end));
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
}

/// What a row of the report measures.
struct Row {
    AttentionCaseShape shape;
    std::int64_t mean_document = 0;    // 0: no documents
    std::int64_t window = 0;           // 0: none
    std::vector<std::int32_t> starts;  // doc_start (M), with documents or a window

    /// The products of queries and keys that are not masked, as a share of those of the causal mask.
    double visible() const {
        double seen = 0;
        for (std::size_t m = 0; m < starts.size(); ++m)
            seen += static_cast<double>(static_cast<std::int64_t>(m) % shape.seq_len - starts[m] + 1);
        const auto t = static_cast<double>(shape.seq_len);
        return starts.empty() ? 1 : seen / (static_cast<double>(shape.batch) * t * (t + 1) / 2);
    }
};

Row row_of(AttentionCaseShape shape, std::int64_t mean_document, std::int64_t window = 0) {
    shape.documents = mean_document > 0 || window > 0;
    Row row{shape, mean_document, window, {}};
    if (mean_document > 0)
        row.starts = packed_documents(shape.batch, shape.seq_len, static_cast<double>(mean_document));
    for (std::int64_t m = 0; window > 0 && m < shape.rows(); ++m)
        row.starts.push_back(static_cast<std::int32_t>(std::max(std::int64_t{0}, m % shape.seq_len - window + 1)));
    return row;
}

std::vector<Buffer> contents(const AttentionCase& made, const AttentionCaseShape& shape) {
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < made.buffers.size(); ++i) {
        View view = made.buffers[i];
        Fill fill = Fill::nothing;
        double scale = 1;
        if (i == kQkv || i == kDout || i == kDelta) fill = Fill::normal;
        if (i == kRope) fill = Fill::angles;
        if (i == kRstd) fill = Fill::positive;
        if (i == kPositions || i == kDocStart || i == kNextTile) fill = Fill::positions;
        if (i == kPositions || i == kDocStart) scale = static_cast<double>(shape.seq_len);
        if (i == kScratch) {
            view.dtype = DType::f32;  // poison seen as numbers
            view.cols = view.ld = view.cols / 4;
        }
        buffers.push_back({"", view, fill, scale, Access::in});
    }
    return buffers;
}

std::vector<Pass> all_passes(const AttentionCase& made, const Memory& memory) {
    std::vector<Pass> passes;
    const auto add = [&](const char* name, const auto& op) {
        passes.push_back({name, op, hopper::prepare(op, memory), 0, {}});
    };
    add("forward", made.forward);
    add("backward", made.backward);
    add("backward rope", made.rope_backward);
    return passes;
}

/// Measures a row and appends its records. `plain`: the times of the passes without documents and window, which such a
/// row sets.
/// `clocks`, if given, is read under load after that.
void run_row(const Row& row, const Options& options, std::vector<double>& plain, nlohmann::json& records,
             Clocks* clocks) {
    const AttentionCaseShape& shape = row.shape;
    const AttentionCase made = make_attention(shape, kMixedBf16);
    const DeviceBuffers buffers(contents(made, shape), 1);
    if (shape.documents)
        CUDA_CHECK(cudaMemcpy(buffers.memory().address(made.buffers[kDocStart]), row.starts.data(),
                              row.starts.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice));
    std::vector<Pass> passes = all_passes(made, buffers.memory());
    // Measured apart: the clocks after a forward block would favour the backward form that follows it.
    measure(std::span(passes).first(1), options);
    measure(std::span(passes).subspan(1), options);
    const double visible = row.visible();
    if (!shape.documents) plain.clear();
    for (std::size_t i = 0; i < passes.size(); ++i) {
        const Pass& pass = passes[i];
        const double ms = pass.median(), bytes = cost(pass.op).bytes;
        const double tflops = visible * cost(pass.op).flops / ms * 1e-9;
        nlohmann::json record = {
            {"pass", pass.name},     {"B", shape.batch},         {"T", shape.seq_len}, {"H", shape.heads},
            {"Hkv", shape.kv_heads}, {"D", shape.head_dim},      {"ms", ms},           {"tflops", tflops},
            {"bytes", bytes},        {"gbps", bytes / ms * 1e-6}};
        std::printf("%-13s B%lld T%lld H%lld/%lld D%lld | %8.4f ms | %6.1f TFLOP/s | %7.1f MB %6.1f GB/s", pass.name,
                    static_cast<long long>(shape.batch), static_cast<long long>(shape.seq_len),
                    static_cast<long long>(shape.heads), static_cast<long long>(shape.kv_heads),
                    static_cast<long long>(shape.head_dim), ms, tflops, bytes * 1e-6, bytes / ms * 1e-6);
        if (shape.documents) {
            const double per_product = ms / visible / plain[i];
            if (row.mean_document > 0) record["documents"] = row.mean_document;
            if (row.window > 0) record["window"] = row.window;
            record["visible"] = visible;
            record["per_product"] = per_product;
            std::printf(" | %s %lld: %.3f of the products, each %.3f times as long",
                        row.window > 0 ? "window of" : "documents of",
                        static_cast<long long>(row.window > 0 ? row.window : row.mean_document), visible, per_product);
        } else {
            plain.push_back(ms);
        }
        std::printf("\n");
        records.push_back(record);
    }
    std::fflush(stdout);
    if (clocks != nullptr) {
        // The clocks are read while half a second of work runs.
        for (int i = 0; i < static_cast<int>(500 / passes[1].median()); ++i) passes[1].launch(nullptr);
        *clocks = current_clocks();
        CUDA_CHECK(cudaDeviceSynchronize());
    }
}

/// Attention on given operands: reads qkv (M, Nq) and dout (M, H hd), writes o (M, H hd) and dqkv (M, Nq), all bf16.
void run_files(const Options& options) {
    const AttentionCase made = make_attention(options.shape, kMixedBf16);
    const DeviceBuffers buffers(contents(made, options.shape), 1);
    const auto transfer = [&](AttentionBuffer buffer, auto move, cudaMemcpyKind kind) {
        const View& view = made.buffers[buffer];
        std::vector<char> host(static_cast<std::size_t>(view.bytes()));
        if (kind == cudaMemcpyHostToDevice) move(host);
        void* device = buffers.memory().address(view);
        const bool up = kind == cudaMemcpyHostToDevice;
        CUDA_CHECK(cudaMemcpy(up ? device : host.data(), up ? host.data() : device, host.size(), kind));
        if (!up) move(host);
    };
    std::ifstream inputs(options.inputs, std::ios::binary);
    const auto read = [&](std::vector<char>& bytes) {
        inputs.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    };
    transfer(kQkv, read, cudaMemcpyHostToDevice);
    transfer(kDout, read, cudaMemcpyHostToDevice);
    require(inputs.good(), "cannot read qkv and dout of this shape from ", options.inputs);
    hopper::prepare(made.forward, buffers.memory())(nullptr);
    hopper::prepare(made.backward, buffers.memory())(nullptr);
    std::vector<char> outputs;
    const auto keep = [&](std::vector<char>& bytes) { outputs.insert(outputs.end(), bytes.begin(), bytes.end()); };
    transfer(kO, keep, cudaMemcpyDeviceToHost);
    transfer(kDqkv, keep, cudaMemcpyDeviceToHost);
    replace_file(options.outputs, std::as_bytes(std::span(outputs)));
}

void run(const Options& options) {
    require(options.inputs.empty() == options.outputs.empty(), "--inputs and --outputs belong together");
    InputFiles inputs;
    inputs.add(options.inputs);
    require_outputs({{"--json", options.json}, {"--outputs", options.outputs}, {"--starts", options.starts}},
                    options.overwrite, inputs);
    if (!options.inputs.empty()) return run_files(options);
    require(
        options.starts.empty() || (options.shape_given && options.documents.size() + (options.window > 0 ? 1 : 0) == 1),
        "--starts takes a shape and one --documents or --window");
    std::vector<AttentionCaseShape> shapes(std::begin(kShapes), std::end(kShapes));
    std::vector<std::int64_t> documents(std::begin(kDocuments), std::end(kDocuments));
    if (options.shape_given) shapes = {options.shape};
    if (options.shape_given || !options.documents.empty()) documents = options.documents;
    std::vector<Row> rows;
    for (const AttentionCaseShape& shape : shapes) {
        rows.push_back(row_of(shape, 0));
        for (const std::int64_t mean : documents) rows.push_back(row_of(shape, mean));
        if (options.window > 0) rows.push_back(row_of(shape, 0, options.window));
    }
    if (!options.shape_given && options.window == 0) {
        rows.push_back(row_of(kWindowShape, 0));
        rows.push_back(row_of(kWindowShape, 0, kWindow));
    }
    if (!options.starts.empty()) replace_file(options.starts, std::as_bytes(std::span(rows.back().starts)));
    nlohmann::json records = nlohmann::json::array();
    std::vector<double> plain;
    Clocks clocks;
    for (const Row& row : rows)
        run_row(row, options, plain, records, !options.json.empty() && &row == &rows.back() ? &clocks : nullptr);
    if (!options.json.empty()) write_run(options.json, clocks, records);
}

}  // namespace

void add_attention(CLI::App& app) {
    CLI::App* command = app.add_subcommand("attention",
                                           "attention, forward and backward; four shapes if none is given, each with "
                                           "documents too, and one with a sliding window");
    auto options = std::make_shared<Options>();
    const auto size = [&](const char* name, std::int64_t& value, const char* help) {
        command->add_option(name, value, help)->check(CLI::PositiveNumber)->capture_default_str();
    };
    size("--batch", options->shape.batch, "sequences");
    size("--seq", options->shape.seq_len, "tokens in each");
    size("--heads", options->shape.heads, "query heads");
    size("--kv-heads", options->shape.kv_heads, "key/value heads");
    size("--head-dim", options->shape.head_dim, "64 or 128");
    command
        ->add_option("--documents", options->documents,
                     "also with documents of random lengths with this mean, in tokens; may be repeated")
        ->check(CLI::PositiveNumber);
    command->add_option("--window", options->window, "also with a sliding window of so many keys")
        ->check(CLI::PositiveNumber);
    command->add_option("--starts", options->starts, "write where each token's document starts to this file (i32)");
    command->add_option("--json", options->json, "write the records to this file, which must be new");
    command->add_flag("--overwrite", options->overwrite,
                      "let --json, --outputs and --starts replace files of these names");
    command->add_option("--warm-up", options->warm_up, "seconds per shape and direction");
    command->add_option("--block", options->block, "seconds per block");
    command->add_option("--blocks", options->blocks, "blocks of every pass, of which the median counts")
        ->check(CLI::PositiveNumber);
    command->add_option("--inputs", options->inputs,
                        "compute with qkv, then dout of this file (bf16), measure nothing");
    command->add_option("--outputs", options->outputs, "write o, then dqkv to this file (bf16)");
    command->callback([command, options] {
        for (const char* name : {"--batch", "--seq", "--heads", "--kv-heads", "--head-dim"})
            options->shape_given = options->shape_given || command->count(name) > 0;
        run(*options);
    });
}

}  // namespace coda::bench
