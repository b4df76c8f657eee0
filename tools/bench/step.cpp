// coda_bench step: a configuration's training step, part by part, compared with its floor.
//
// The floor is what a step would take if only GEMMs and attention took time. The bare cuBLASLt GEMMs run as one CUDA
// graph, in the schedule's order, on the step's own buffers, which are filled with random normal numbers. The graph and
// our step take turns of a few runs each. The floor adds attention: ours or, where --cudnn-forward-ms and
// --cudnn-backward-ms give its times, cuDNN's, whichever is faster.
//
// A step with FP8 operands is compared with the same step in bf16 instead, which takes turns with it if the GPU's
// memory holds both models, and comes before it otherwise. The record says which.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "kernels/core/error.h"
#include "src/config/codec.h"
#include "src/config/command_line.h"
#include "src/core/errors.h"
#include "src/core/median.h"
#include "src/train/resume_check.h"
#include "tools/bench/commands.h"
#include "tools/bench/step_times.h"

namespace coda::bench {

namespace {

struct Options {
    std::string config, json;
    StepTimeOptions times;
    bool no_floor = false, alone = false, overwrite = false;
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

std::vector<double> ratios_of(const std::vector<double>& ours, const std::vector<double>& theirs) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / theirs[i]);
    return ratios;
}

/// What may be spent outside GEMMs and attention where the GEMMs have FP8 operands, of forward + backward.
constexpr double kOtherShareBar = 0.025;

void print(const std::string& name, const Config& config, const StepResult& result) {
    const StepTimes& t = result.times;
    const auto layers = static_cast<double>(config.model.num_hidden_layers);
    const bool f8 = config.precision.has_fp8;
    std::printf("%s  %s  B %lld  T %lld  %.3f B parameters\n", name.c_str(),
                precision_text(config.precision, DType::bf16).c_str(),
                static_cast<long long>(config.training.micro_batch_size),
                static_cast<long long>(config.training.seq_len), result.parameters * 1e-9);
    std::printf("forward             %9.2f ms\n", t.forward);
    std::printf("backward            %9.2f ms\n", t.backward);
    std::printf("forward + backward  %9.2f ms   MFU %4.1f%%\n", t.forward_backward,
                100 * result.mfu(t.forward_backward));
    std::printf("optimizer           %9.2f ms   gradient norm %.2f, AdamW %.2f", t.update, t.grad_norm, t.adamw);
    if (f8) std::printf(", FP8 scales and weights %.2f", t.f8_update);
    std::printf("\n");
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
    std::printf("outside GEMMs and attention %.2f%%", 100 * t.other_share());
    if (f8) std::printf(" (bar %.1f%%%s)", 100 * kOtherShareBar, t.other_share() <= kOtherShareBar ? "" : ", missed");
    std::printf("\n");
    std::printf("peak memory         %9.2f GiB   arena %.2f\n", result.peak_gib, result.arena_gib);
    std::printf(
        "MFU: model FLOPs (2 M N K of every forward GEMM, causal attention at half the square; three times "
        "that for forward + backward) over %.1f TFLOP/s, dense bf16\n",
        result.peak_flops_per_s * 1e-12);
}

void print_beside(const StepMeasurement& made) {
    const auto line = [](const char* part, const std::vector<double>& ours, const std::vector<double>& theirs) {
        const std::vector<double> ratios = ratios_of(ours, theirs);
        const auto [lowest, highest] = std::minmax_element(ratios.begin(), ratios.end());
        std::printf("%-19s of bf16's  %.3f   %.3f to %.3f in %zu rounds\n", part, median_of(ratios), *lowest, *highest,
                    ratios.size());
    };
    std::printf("FP8 compared with bf16, %s\n",
                made.in_turns ? "in turns" : "which ran first: memory holds one of them");
    line("forward + backward", made.step.forward_backward_rounds, made.bf16->forward_backward_rounds);
    line("whole step", made.step.whole_rounds, made.bf16->whole_rounds);
}

/// What a record of a part has of the same part in bf16.
nlohmann::json beside_bf16(const StepMeasurement& made, std::vector<double> StepResult::*part) {
    if (!made.bf16) return nlohmann::json::object();
    const std::vector<double>&ours = made.step.*part, &theirs = (*made.bf16).*part;
    const std::vector<double> ratios = ratios_of(ours, theirs);
    const auto [lowest, highest] = std::minmax_element(ratios.begin(), ratios.end());
    return {{"bf16_ms", median_of(theirs)},
            {"ratio_bf16", median_of(ratios)},
            {"spread", {*lowest, *highest}},
            {"rounds_ms", ours},
            {"bf16_rounds_ms", theirs},
            {"in_turns", made.in_turns},
            {"bf16_peak_gib", made.bf16->peak_gib},
            {"bf16_arena_gib", made.bf16->arena_gib}};
}

nlohmann::json records_of(const std::string& name, const Config& config, const StepMeasurement& made) {
    const StepResult& result = made.step;
    const StepTimes& t = result.times;
    const nlohmann::json common = {{"config", name},
                                   {"precision", precision_text(config.precision, DType::bf16)},
                                   {"B", config.training.micro_batch_size},
                                   {"T", config.training.seq_len},
                                   {"lm_head_chunks", config.training.lm_head_chunks},
                                   {"recompute", Codec<Recompute>::write(config.training.recompute)},
                                   {"peak_gib", result.peak_gib},
                                   {"arena_gib", result.arena_gib}};
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
    if (config.precision.has_fp8) step["fp8_update_ms"] = t.f8_update;
    passes.update(beside_bf16(made, &StepResult::forward_backward_rounds));
    step.update(beside_bf16(made, &StepResult::whole_rounds));
    return {passes, step};
}

void run(Options options, const std::vector<std::string>& flags) {
    const Config config = read_config(options, flags);
    InputFiles inputs;
    inputs.add(options.config);
    require_outputs({{"--json", options.json}}, options.overwrite, inputs);
    options.times.floor = !options.no_floor;
    options.times.bf16 = !options.alone;
    options.times.clocks = !options.json.empty();
    const std::string name = std::filesystem::path(options.config).stem().string();
    const StepMeasurement made = measure_step(config, options.times);
    if (made.bf16) {
        Config bf16 = config;
        bf16.precision = PrecisionConfig{};
        print(name, bf16, *made.bf16);
        std::printf("\n");
    }
    print(name, config, made.step);
    if (made.bf16) print_beside(made);
    if (!options.json.empty()) write_run(options.json, made.step.clocks, records_of(name, config, made));
}

}  // namespace

void add_step(CLI::App& app) {
    CLI::App* command = app.add_subcommand("step",
                                           "One training step of a configuration: forward, backward, optimizer, whole, "
                                           "and the floor, or with --precision fp8 "
                                           "the same step in bf16. Every key of "
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
    command->add_flag("--alone", options->alone, "of FP8 operands: without the step in bf16");
    command->add_option("--cudnn-forward-ms", options->times.cudnn_forward_ms, "cuDNN's time of one layer's attention");
    command->add_option("--cudnn-backward-ms", options->times.cudnn_backward_ms, "likewise, backward");
    command->callback([options, command] { run(*options, command->remaining()); });
}

}  // namespace coda::bench
