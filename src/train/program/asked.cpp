#include "src/train/program/asked.h"

#include "src/engine/device.h"
#include "src/engine/plan_report.h"
#include "src/train/run_samples.h"
#include "src/train/trainer.h"

namespace coda {

PassSet passes_of(const CommandLine& command) {
    if (command.trains()) return training_passes(command.config);
    PassSet passes = passes_of(Mode::export_);
    if (command.eval || command.calibrate > 0) passes = passes | passes_of(Mode::evaluate);
    return passes;
}

RunOptions run_options(const CommandLine& command) {
    RunOptions options;
    options.resume = command.resume;
    options.allow = {.other_device = command.allow_other_device, .changed_data = command.allow_changed_data};
    options.init_from = command.init_from;
    options.timing = command.timing;
    options.dump_batches = command.dump_batches;
    options.tensor_stats = command.tensor_stats;
    options.tensor_stats_every = command.tensor_stats_every;
    options.overwrite = command.overwrite;
    if (command.config_path) options.inputs.emplace_back(*command.config_path);
    options.oracle_step = command.oracle_step;
    options.decoder = command.decoder;
    options.command = command.command;
    return options;
}

std::shared_ptr<const RunPrompts> training_prompts(const CommandLine& command) {
    if (!command.trains() || command.config.samples.interval == 0) return nullptr;
    return std::make_shared<const RunPrompts>(run_prompts(command.config, command.resume));
}

std::optional<RunTokenizer> data_tokenizer(const CommandLine& command) {
    return command.trains() || command.eval ? open_tokenizer(command.config, command.resume) : std::nullopt;
}

std::vector<CpuWork> works_of(const CommandLine& command, const Schedules& schedules) {
    const Config& config = command.config;
    std::vector<CpuWork> works;
    if (command.trains()) works.push_back(training_work(config, schedules, config.training.steps));
    if (command.eval) works.push_back(validation_work(config, schedules));
    return works;
}

}  // namespace coda
