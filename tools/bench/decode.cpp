// coda_bench decode: steps/s of the fused decode kernel, with random weights, for the shapes of Llama-3.2-1B and
// Llama-3.1-8B.
//
// Launches of 32 greedy steps, the median of them; after four, 128 tokens, every sequence is set back to its context.
// "stream": bytes of weights and cache that a step must read, over the time, and its share of --stream, which is what
// bulk copies by themselves reach. --ops and --trace show where the time of one step goes.
#include <cuda_runtime.h>
#include <nlohmann/json.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <vector>

#include "kernels/cases/device_buffers.h"
#include "kernels/hopper/decode/launch.h"
#include "kernels/hopper/decode/plan/lower.h"
#include "kernels/hopper/sm90/check.h"
#include "src/core/memory_plan.h"
#include "src/model/schedules.h"
#include "tools/bench/commands.h"
#include "tools/bench/result_header.h"

namespace coda::bench {

namespace {

struct Options {
    std::vector<std::string> models{"1B", "8B"};
    std::vector<int> batches{1, 2, 4, 8}, contexts{256, 8192};
    int launches = 8, in_flight = 56;
    double stream = 4.71, watchdog = 2, warm_up = 0.1;
    std::string json, trace;
    bool overwrite = false, ops = false;
};
constexpr int kSteps = 32, kLaunchesInARow = 4;

ModelConfig model_of(const std::string& name) {
    ModelConfig model;
    model.vocab_size = 128256;
    model.num_attention_heads = 32;
    model.num_key_value_heads = 8;
    if (name == "1B") {
        model.hidden_size = 2048;
        model.intermediate_size = 8192;
        model.num_hidden_layers = 16;
        model.head_dim = 64;
    } else {
        require(name == "8B", "decode: unknown model ", name, ": 1B or 8B");
        model.hidden_size = 4096;
        model.intermediate_size = 14336;
        model.num_hidden_layers = 32;
        model.head_dim = 128;
    }
    return model;
}

/// One allocation, all of it normal numbers.
class Arena {
  public:
    explicit Arena(std::int64_t bytes) {
        CUDA_CHECK(cudaMalloc(&memory_, static_cast<std::size_t>(bytes)));
        cases::fill_normal(memory_, bytes / 2, 1, nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    ~Arena() { cudaFree(memory_); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    std::byte* get() const { return static_cast<std::byte*>(memory_); }

  private:
    void* memory_ = nullptr;
};

void set_words(const Memory& memory, const View& view, std::int32_t value) {
    const std::vector<std::int32_t> words(static_cast<std::size_t>(view.count()), value);
    CUDA_CHECK(cudaMemcpy(memory.at<std::int32_t>(view), words.data(), words.size() * sizeof words[0],
                          cudaMemcpyHostToDevice));
}

/// Every sequence at `context` tokens, greedy, without an end.
void set_sequences(const Memory& memory, const SequenceRows& rows, int context) {
    set_words(memory, rows.token, 1);
    set_words(memory, rows.positions, context - 1);
    set_words(memory, rows.lengths, context);
    set_words(memory, rows.state, static_cast<int>(RowState::running));
    set_words(memory, rows.status, 0);
    set_words(memory, rows.limits, 1 << 30);
    set_words(memory, rows.end_tokens, -1);
    set_words(memory, rows.seen, 0);
    const std::vector<ChoiceOptions> options(static_cast<std::size_t>(rows.token.cols),
                                             ChoiceOptions{.temperature = 0});
    CUDA_CHECK(cudaMemcpy(memory.at<std::int32_t>(rows.options), options.data(), options.size() * sizeof options[0],
                          cudaMemcpyHostToDevice));
}

double stream_bytes(const hopper::decode::DecodePlan& plan, int context) {
    const hopper::decode::Shape& shape = plan.operands.shape;
    double bytes = 0;
    for (const hopper::decode::DecodeOp& op : plan.ops) {
        bytes += 2.0 * hopper::decode::kTileRows * op.tiles * op.columns;
        if (op.kind == hopper::decode::OpKind::attention) bytes += 4.0 * shape.batch * shape.kv_columns() * context;
    }
    return bytes;
}

/// Milliseconds of a launch.
float time_launch(hopper::decode::FusedDecode& fused, cudaEvent_t begin, cudaEvent_t end) {
    CUDA_CHECK(cudaEventRecord(begin));
    fused.launch(kSteps, nullptr);
    CUDA_CHECK(cudaEventRecord(end));
    fused.finish(nullptr);
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    const std::vector<std::int32_t> made = fused.made(kSteps);
    require(std::all_of(made.begin(), made.end(), [](std::int32_t token) { return token >= 0; }),
            "decode: a sequence of the benchmark ended");
    return milliseconds;
}

/// Prints a line and returns the record.
nlohmann::json measure(const std::string& name, int batch, int context, const Options& options, Clocks& clocks) {
    ScheduleOptions request;
    request.precision = kMixedBf16;
    request.seq_len = 1;
    request.micro_batch_size = 1;
    request.generation = {.batch = batch, .context = context + kSteps * kLaunchesInARow};
    const ModelConfig model = model_of(name);
    const Schedules schedules = build_schedules(model, parameter_layout(model), request, PassSet{Pass::decode});
    const Schedule* const decode[] = {&schedules.decode};
    const MemoryPlan plan = plan_memory(schedules.buffers, decode);
    const Arena arena(plan.arena_bytes());
    std::vector<std::byte*> bases;
    for (const std::int64_t offset : plan.offset) bases.push_back(offset < 0 ? nullptr : arena.get() + offset);
    const Memory memory(bases);
    hopper::decode::FusedDecode fused(
        hopper::decode::lower(schedules.decode, memory, hopper::decode::multiprocessors()),
        {.watchdog_seconds = options.watchdog,
         .in_flight_bytes = options.in_flight * 1024,
         .traced_step = options.ops || !options.trace.empty() ? kSteps / 2 : -1});
    cudaEvent_t begin{}, end{};
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    std::vector<double> microseconds;
    double warm_ms = 0;
    for (int launch = 0; static_cast<int>(microseconds.size()) < options.launches; ++launch) {
        if (launch % kLaunchesInARow == 0) set_sequences(memory, schedules.host.sequences, context);
        const double milliseconds = time_launch(fused, begin, end);
        // The first four launches and as many more as --warm-up lasts.
        const bool row_done = (launch + 1) % kLaunchesInARow == 0;
        if (warm_ms >= 0) {
            warm_ms += milliseconds;
            if (row_done && warm_ms >= 1e3 * options.warm_up) warm_ms = -1;
            continue;
        }
        microseconds.push_back(milliseconds * 1e3 / kSteps);
    }
    clocks = current_clocks();
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    std::sort(microseconds.begin(), microseconds.end());
    const double median = microseconds[microseconds.size() / 2];
    const double bytes = stream_bytes(fused.plan(), context);
    const double rate = bytes / median * 1e-6;  // TB/s
    std::printf("%-3s batch %d context %5d  %8.1f us  %7.1f steps/s  %5.2f TB/s  %3.0f%% of the stream\n", name.c_str(),
                batch, context, median, 1e6 / median, rate, 100 * rate / options.stream);
    if (options.ops) std::fputs(hopper::decode::op_table(fused.trace(), fused.plan()).c_str(), stdout);
    if (!options.trace.empty()) {
        std::ofstream file(options.trace);
        file << hopper::decode::chrome_trace(fused.trace(), fused.plan());
        file.close();
        require(file.good(), "decode: ", options.trace, " could not be written");
    }
    std::fflush(stdout);
    return {{"model", name == "1B" ? "llama1b" : "llama8b"},
            {"dtype", "bf16"},
            {"head", "bf16"},
            {"batch", batch},
            {"context", context},
            {"ms", median * 1e-3},
            {"steps_per_s", 1e6 / median},
            {"bytes", bytes},
            {"stream_tb_s", options.stream},
            {"share_of_bandwidth", rate / options.stream}};
}

}  // namespace

void add_decode(CLI::App& app) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("decode", "The fused decode kernel: steps/s and share of the stream");
    command->add_option("--models", options->models, "1B, 8B")->delimiter(',');
    command->add_option("--batches", options->batches, "Sequences")->delimiter(',');
    command->add_option("--contexts", options->contexts, "Tokens of each sequence")->delimiter(',');
    command->add_option("--launches", options->launches, "Of 32 steps each")->check(CLI::PositiveNumber);
    command->add_option("--in-flight", options->in_flight, "KB of loads per SM at a time")->check(CLI::PositiveNumber);
    command->add_option("--stream", options->stream, "TB/s of bulk copies by themselves")->check(CLI::PositiveNumber);
    command->add_flag("--ops", options->ops, "A table of the ops of a step, which is traced");
    command->add_option("--trace", options->trace, "File for the last row's step, in Chrome's trace format");
    command->add_option("--watchdog", options->watchdog, "Seconds")->check(CLI::PositiveNumber);
    command->add_option("--warm-up", options->warm_up, "Seconds of launches that are not timed")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--json", options->json, "Write {header, records} for tools/bench/records.py");
    command->add_flag("--overwrite", options->overwrite, "--json and --trace may replace files");
    command->callback([options] {
        require_outputs({{"--json", options->json}, {"--trace", options->trace}}, options->overwrite);
        nlohmann::json records = nlohmann::json::array();
        Clocks clocks;
        for (const std::string& name : options->models)
            for (const int context : options->contexts)
                for (const int batch : options->batches)
                    records.push_back(measure(name, batch, context, *options, clocks));
        if (!options->json.empty()) write_run(options->json, clocks, records);
    });
}

}  // namespace coda::bench
