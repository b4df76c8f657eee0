// coda_bench step: a configuration's training step, part by part, beside its floor.
//
// The floor is what a step would take if only GEMMs and attention took time. The bare cuBLASLt GEMMs run as one CUDA
// graph, in the schedule's order, on the step's own buffers, which are filled with random normal numbers. The graph and
// our step take turns of a few runs each. The floor adds attention: ours or, where --cudnn-forward-ms and
// --cudnn-backward-ms give its times, cuDNN's, whichever is faster.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "kernels/core/error.h"
#include "src/config/codec.h"
#include "src/config/command_line.h"
#include "src/core/errors.h"
#include "tools/bench/commands.h"
#include "tools/bench/step_times.h"

namespace coda::bench {

namespace {

struct Options {
    std::string config, json;
    StepTimeOptions times;
    bool no_floor = false, overwrite = false;
};

/// The configuration with the flags that follow it, as coda_train reads them.
Config read_config(const Options& options, const std::vector<std::string>& flags) {
    std::vector<const char*> words = {"coda_bench step", "--config", options.config.c_str()};
    for (const std::string& flag : flags) words.push_back(flag.c_str());
    const CommandLine command = parse_command_line(static_cast<int>(words.size()), words.data());
    if (command.help || command.version || command.dry_run || command.print_config || command.print_schedule ||
        command.resume || command.timing || command.init_from || command.oracle_step || command.dump_batches ||
        !command.trains()) {
        throw UsageError(
            "step takes the keys of a configuration as flags, such as --training.seq_len 2048, and none "
            "of coda_train's other flags");
    }
    return command.config;
}

void print(const std::string& name, const Config& config, const StepResult& result) {
    const StepTimes& t = result.times;
    const auto layers = static_cast<double>(config.model.num_hidden_layers);
    std::printf("%s  B %lld  T %lld  %.3f B parameters  deterministic %s\n", name.c_str(),
                static_cast<long long>(config.training.micro_batch_size),
                static_cast<long long>(config.training.seq_len), result.parameters * 1e-9,
                config.deterministic ? "true" : "false");
    std::printf("forward             %9.2f ms\n", t.forward);
    std::printf("backward            %9.2f ms\n", t.backward);
    std::printf("forward + backward  %9.2f ms   MFU %4.1f%%\n", t.forward_backward,
                100 * result.mfu(t.forward_backward));
    std::printf("optimizer           %9.2f ms   GradNorm %.2f, AdamW %.2f\n", t.update, t.grad_norm, t.adamw);
    std::printf("whole step          %9.2f ms   MFU %4.1f%%   %.0f tokens/s\n", t.whole, 100 * result.mfu(t.whole),
                result.tokens_per_s());
    if (t.has_floor) {
        std::printf("floor               %9.2f ms   cuBLAS GEMMs %.2f; forward + backward / floor %.3f\n", t.floor,
                    t.floor_products, t.floor_ratio);
    }
    std::printf(
        "op by op            %9.2f ms   GEMMs %.2f, attention %.2f + %.2f (per layer %.3f + %.3f), other %.2f\n",
        t.products + t.attention_forward + t.attention_backward + t.other, t.products, t.attention_forward,
        t.attention_backward, t.attention_forward / layers, t.attention_backward / layers, t.other);
    std::printf("outside GEMMs and attention %.2f%%\n", 100 * t.other_share());
    std::printf("peak memory         %9.2f GiB\n", result.peak_gib);
    std::printf(
        "MFU: model FLOPs (2 M N K of every forward GEMM, causal attention at half the square; three times "
        "that for forward + backward) over %.1f TFLOP/s, dense bf16\n",
        result.peak_flops_per_s * 1e-12);
}

nlohmann::json records_of(const std::string& name, const Config& config, const StepResult& result) {
    const StepTimes& t = result.times;
    const nlohmann::json common = {{"config", name},
                                   {"precision", "bf16"},
                                   {"B", config.training.micro_batch_size},
                                   {"T", config.training.seq_len},
                                   {"deterministic", config.deterministic},
                                   {"lm_head_chunks", config.training.lm_head_chunks},
                                   {"recompute", Codec<Recompute>::write(config.training.recompute)},
                                   {"peak_gib", result.peak_gib}};
    nlohmann::json passes = common, step = common;
    passes.update({{"part", "forward_backward"},
                   {"ms", t.forward_backward},
                   {"forward_ms", t.forward},
                   {"backward_ms", t.backward},
                   {"tokens_per_s", result.tokens / t.forward_backward * 1e3},
                   {"mfu", result.mfu(t.forward_backward)},
                   {"products_ms", t.products},
                   {"attention_forward_ms", t.attention_forward},
                   {"attention_backward_ms", t.attention_backward},
                   {"other_ms", t.other},
                   {"other_share", t.other_share()}});
    if (t.has_floor) {
        passes.update({{"floor_ms", t.floor}, {"floor_products_ms", t.floor_products}, {"floor_ratio", t.floor_ratio}});
    }
    step.update({{"part", "step"},
                 {"ms", t.whole},
                 {"update_ms", t.update},
                 {"grad_norm_ms", t.grad_norm},
                 {"adamw_ms", t.adamw},
                 {"tokens_per_s", result.tokens_per_s()},
                 {"mfu", result.mfu(t.whole)}});
    return {passes, step};
}

void run(Options options, const std::vector<std::string>& flags) {
    const Config config = read_config(options, flags);
    InputFiles inputs;
    inputs.add(options.config);
    require_outputs({{"--json", options.json}}, options.overwrite, inputs);
    options.times.floor = !options.no_floor;
    options.times.clocks = !options.json.empty();
    const std::string name = std::filesystem::path(options.config).stem().string();
    const StepResult result = measure_step(config, options.times);
    print(name, config, result);
    if (!options.json.empty()) write_run(options.json, result.clocks, records_of(name, config, result));
}

}  // namespace

void add_step(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "step",
        "One training step of a configuration: forward, backward, optimizer, whole, and the floor. Every key of "
        "the configuration is a flag, as coda_train's: --training.seq_len 2048");
    command->allow_extras();
    auto options = std::make_shared<Options>();
    command->add_option("--config", options->config, "configuration file")->required();
    command->add_option("--json", options->json, "write the records to this file, which must be new");
    command->add_flag("--overwrite", options->overwrite, "let --json replace a file of this name");
    command->add_option("--warm-up", options->times.warm_up, "seconds");
    command->add_option("--steps", options->times.steps, "timed steps, of which the median counts")
        ->check(CLI::PositiveNumber);
    command->add_flag("--no-floor", options->no_floor, "without cuBLAS's GEMMs");
    command->add_option("--cudnn-forward-ms", options->times.cudnn_forward_ms, "cuDNN's time of one layer's attention");
    command->add_option("--cudnn-backward-ms", options->times.cudnn_backward_ms, "likewise, backward");
    command->callback([options, command] { run(*options, command->remaining()); });
}

}  // namespace coda::bench
