// coda_bench decode: steps/s of decoding with random weights, for the shapes of Llama-3.2-1B and Llama-3.1-8B.
//
// A time is the wall time of a step: 127 greedy steps, launched as coda_generate launches them, with the host's work
// between launches; the median of several runs. Every sequence begins at its context. `kernel` is the time of the
// launches only. A step must read its weights and cache: their bytes over the wall time are a share of the stream,
// which is what bulk copies reach when nothing else runs. The program measures the stream first. --ops and --trace show
// where the time of one step goes.
#include <cuda_runtime.h>
#include <nlohmann/json.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <vector>

#include "kernels/cases/device_buffers.h"
#include "kernels/hopper/decode/launch.h"
#include "kernels/hopper/decode/plan/lower.h"
#include "kernels/hopper/sm90/device.h"
#include "kernels/math/int4.h"
#include "src/core/decoder_options.h"
#include "src/core/median.h"
#include "src/core/memory_plan.h"
#include "src/engine/hopper_executor.h"
#include "src/generate/pass_launches.h"
#include "src/model/schedules.h"
#include "tools/bench/commands.h"
#include "tools/bench/read_stream.h"
#include "tools/bench/result_header.h"
#include "tools/bench/timer.h"

namespace coda::bench {

namespace {

struct Options {
    std::vector<std::string> models{"1B", "8B"};
    std::vector<int> batches{1, 2, 4, 8}, contexts{96, 128, 256, 1024, 8192};
    std::vector<std::string> weights{"bf16"}, decoders{"fused"};
    int runs = 5, in_flight = 0;
    double stream = 0, watchdog = kDefaultWatchdog, warm_up = 0.1;
    std::string json, trace;
    bool overwrite = false, ops = false;
};
constexpr int kSteps = 127;  // of a run: a prompt, then 128 tokens, of which prefill makes the first

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
        const double elements = 1.0 * hopper::decode::kTileRows * op.tiles * op.columns;
        bytes += op.int4 ? elements / (kInt4Rows * kInt4Group) * hopper::decode::kUnitBytes : 2 * elements;
        if (op.kind == hopper::decode::OpKind::attention)
            bytes += 4.0 * shape.batch * shape.kv_columns() * hopper::decode::visible_positions(context, shape.window);
    }
    return bytes;
}

/// A model of random weights, ready to decode.
class RandomModel {
  public:
    RandomModel(const std::string& name, const std::string& weights, int batch, int context) {
        ScheduleOptions request;
        request.precision = kMixedBf16;
        request.seq_len = 1;
        request.micro_batch_size = 1;
        request.generation = {.batch = batch, .context = context + kSteps};
        const ModelConfig model = model_of(name);
        const ParameterLayout layout = parameter_layout(model);
        for (std::size_t i = 0; weights == "int4" && i < layout.matrices.size(); ++i)
            if (layout.matrices[i].layer >= 0) request.generation.int4.push_back(i);
        schedules_ = build_schedules(model, layout, request, PassSet{Pass::decode});
        schedules_.prefill.clear();  // nobody runs them, so their buffers need no memory
        schedules_.derive.clear();
        const Schedule* const decode[] = {&schedules_.decode};
        const MemoryPlan plan = plan_memory(schedules_.buffers, decode);
        executor_ = make_hopper_executor(schedules_, plan, nullptr);
        for (std::size_t id = 0; id < plan.offset.size(); ++id) {
            if (plan.offset[id] < 0) continue;
            const std::int64_t bytes = schedules_.buffers[static_cast<BufferId>(id)].bytes;
            View all{.buffer = static_cast<BufferId>(id), .dtype = DType::bf16, .rows = 1, .cols = bytes / 2};
            all.ld = all.cols;
            cases::fill_normal(memory().address(all), bytes / 2, id + 1, nullptr);
        }
        for (const std::size_t i : request.generation.int4) {
            const View& units = schedules_.weights.projection(i).units();
            cases::fill_units(memory().at<std::int32_t>(units), units.count(), i + 1, nullptr);
        }
        CUDA_CHECK(cudaDeviceSynchronize());
    }

    const Schedules& schedules() const { return schedules_; }
    const SequenceRows& sequences() const { return schedules_.host.sequences; }
    const Memory& memory() const { return executor_->memory(); }

    std::unique_ptr<DecodeLaunches> launches(const std::string& decoder, double watchdog) {
        if (decoder == "passes")
            return std::make_unique<PassLaunches>(*executor_, schedules_, [this](Pass pass) { executor_->run(pass); });
        DecodeLaunchesOffer offer = executor_->offer_decode_launches(watchdog);
        require(offer.launches != nullptr, "decode: ", offer.problem);
        return std::move(offer.launches);
    }

  private:
    Schedules schedules_;
    std::unique_ptr<Executor> executor_;
};

/// Runs kSteps steps from `context` on. Returns microseconds per step.
double wall_us(RandomModel& model, DecodeLaunches& launches, int context) {
    set_sequences(model.memory(), model.sequences(), context);
    CUDA_CHECK(cudaDeviceSynchronize());
    const auto begin = std::chrono::steady_clock::now();
    for (int done = 0; done < kSteps;) {
        const int now = std::min(kSteps - done, launches.most_steps());
        const DecodedSteps made = launches.run(now, [] { return false; });
        require(std::all_of(made.tokens.begin(), made.tokens.end(), [](std::int32_t token) { return token >= 0; }),
                "decode: a sequence of the benchmark ended");
        done += now;
    }
    const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - begin;
    return wall.count() / kSteps;
}

/// Microseconds per step of the fused kernel's launches, without the host's work.
double kernel_us(RandomModel& model, hopper::decode::FusedDecode& fused, int most_steps, int context) {
    set_sequences(model.memory(), model.sequences(), context);
    CUDA_CHECK(cudaDeviceSynchronize());
    double milliseconds = 0;
    for (int done = 0; done < kSteps;) {
        const int now = std::min(kSteps - done, most_steps);
        Timer timer;
        milliseconds += timer.run({[&](hopper::Stream stream) { fused.launch(now, stream); }}, 1);
        fused.finish(nullptr);
        done += now;
    }
    return 1e3 * milliseconds / kSteps;
}

/// What --ops and --trace show of the traced step.
void show_trace(const hopper::decode::FusedDecode& fused, const Options& options) {
    if (options.ops) std::fputs(hopper::decode::op_table(fused.trace(), fused.plan()).c_str(), stdout);
    if (options.trace.empty()) return;
    std::ofstream file(options.trace);
    file << hopper::decode::chrome_trace(fused.trace(), fused.plan());
    file.close();
    require(file.good(), "decode: ", options.trace, " could not be written");
}

/// Prints a line and returns the record.
nlohmann::json measure(const std::string& name, const std::string& weights, const std::string& decoder, int batch,
                       int context, const Options& options, Clocks& clocks) {
    RandomModel model(name, weights, batch, context);
    const bool traced = options.ops || !options.trace.empty(), is_fused = decoder == "fused";
    hopper::decode::FusedDecode fused(
        hopper::decode::lower(model.schedules().decode, model.memory(), hopper::multiprocessors()),
        {.watchdog_seconds = options.watchdog, .in_flight_bytes = options.in_flight * 1024});
    const double bytes = stream_bytes(fused.plan(), context);
    const std::unique_ptr<DecodeLaunches> launches = model.launches(decoder, options.watchdog);
    for (double warm = 0; warm < 1e6 * options.warm_up;) warm += kSteps * wall_us(model, *launches, context);
    std::vector<double> wall, kernel;
    for (int run = 0; run < options.runs; ++run) {
        wall.push_back(wall_us(model, *launches, context));
        if (is_fused) kernel.push_back(kernel_us(model, fused, launches->most_steps(), context));
    }
    clocks = current_clocks();
    const double us = median_of(wall), rate = bytes / us * 1e-6;  // TB/s
    std::printf("%-3s %-4s %-6s batch %d context %5d  %8.1f us  %7.1f steps/s  %5.2f TB/s  %3.0f%% of the stream",
                name.c_str(), weights.c_str(), decoder.c_str(), batch, context, us, 1e6 / us, rate,
                100 * rate / options.stream);
    if (is_fused) std::printf("  kernel %8.1f us", median_of(kernel));
    std::printf("\n");
    if (is_fused && traced) {
        constexpr int kTracedStep = 16;
        hopper::decode::FusedDecode shown(fused.plan(), {.watchdog_seconds = options.watchdog,
                                                         .in_flight_bytes = options.in_flight * 1024,
                                                         .traced_step = kTracedStep});
        kernel_us(model, shown, launches->most_steps(), context);
        std::printf("with a step that is traced: kernel %.1f us\n",
                    kernel_us(model, shown, launches->most_steps(), context));
        show_trace(shown, options);
    }
    std::fflush(stdout);
    nlohmann::json record = {{"model", name == "1B" ? "llama1b" : "llama8b"},
                             {"dtype", weights},
                             {"head", "bf16"},
                             {"decoder", decoder},
                             {"batch", batch},
                             {"context", context},
                             {"ms", us * 1e-3},
                             {"steps_per_s", 1e6 / us},
                             {"bytes", bytes},
                             {"stream_tb_s", options.stream},
                             {"share_of_bandwidth", rate / options.stream}};
    if (is_fused) record["kernel_ms"] = median_of(kernel) * 1e-3;
    return record;
}

}  // namespace

void add_decode(CLI::App& app) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("decode", "Decoding: steps/s and share of the stream");
    command->add_option("--models", options->models, "1B, 8B")->delimiter(',');
    command->add_option("--batches", options->batches, "Sequences")->delimiter(',');
    command->add_option("--contexts", options->contexts, "Tokens of each sequence")->delimiter(',');
    command->add_option("--weights", options->weights, "bf16; int4: the layers' matrices, the head in bf16")
        ->delimiter(',')
        ->check(CLI::IsMember({"bf16", "int4"}));
    command->add_option("--decoders", options->decoders, "fused: the fused kernel; passes: the op list")
        ->delimiter(',')
        ->check(CLI::IsMember({"fused", "passes"}));
    command->add_option("--runs", options->runs, "Of 127 steps each")->check(CLI::PositiveNumber);
    command
        ->add_option("--in-flight", options->in_flight,
                     "KB of loads per SM at a time, for `kernel`; 0: what is fastest")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--stream", options->stream, "TB/s of the stream, instead of measuring it")
        ->check(CLI::PositiveNumber);
    command->add_flag("--ops", options->ops, "A table of the ops of a step, which is traced");
    command->add_option("--trace", options->trace, "File for the last row's step, in Chrome's trace format");
    command->add_option("--watchdog", options->watchdog, "Seconds")->check(CLI::PositiveNumber);
    command->add_option("--warm-up", options->warm_up, "Seconds of steps that are not timed")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--json", options->json, "Write {header, records} for tools/bench/records.py");
    command->add_flag("--overwrite", options->overwrite, "--json and --trace may replace files");
    command->callback([options] {
        require_outputs({{"--json", options->json}, {"--trace", options->trace}}, options->overwrite);
        nlohmann::json records = nlohmann::json::array();
        Clocks clocks;
        if (options->stream == 0) {
            options->stream = read_stream_tb_s();
            std::printf("the stream: bulk copies read %.2f TB/s\n", options->stream);
        }
        for (const std::string& name : options->models)
            for (const int context : options->contexts)
                for (const int batch : options->batches)
                    for (const std::string& weights : options->weights)
                        for (const std::string& decoder : options->decoders)
                            records.push_back(measure(name, weights, decoder, batch, context, *options, clocks));
        if (!options->json.empty()) write_run(options->json, clocks, records);
    });
}

}  // namespace coda::bench
