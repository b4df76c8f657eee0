#include "src/train/program/describe.h"

#include "src/core/errors.h"
#include "src/core/standard_streams.h"
#include "src/engine/device.h"
#include "src/engine/plan_report.h"
#include "src/io/hf.h"
#include "src/train/checkpoints.h"
#include "src/train/program/asked.h"
#include "src/train/rank_options.h"
#include "src/train/run_files.h"
#include "src/train/run_samples.h"

namespace coda {

namespace {

void print_data(const Config& config, const EvaluationData& data, const std::string& training) {
    print(text("data                ", training, data.validation->sequences(), " validation sequences of ",
               config.training.seq_len, " tokens\n"));
    for (const EvaluationShard& shard : data.shards) {
        print(text("evaluation          ", shard.name(), ": ", shard.examples(), " examples\n"));
    }
}

}  // namespace

int describe(const CommandLine& command, int ranks) {
    const Config& config = command.config;
    const PassSet passes = passes_of(command);
    const DeviceChoice device = resolve_device(config, passes);
    const Precision precision = precision_of(config, device);
    const RankOf rank{.rank = 0, .ranks = ranks};
    require_divisible(config, ranks);
    const ParameterLayout layout = parameter_layout(config.model);
    const Schedules schedules =
        build_schedules(config.model, layout, schedule_options(config, precision, rank), passes);
    const MemoryPlan plan = plan_and_check(schedules);
    if (command.print_schedule) print(print_schedule(schedules));
    if (!command.dry_run) return kExitDone;

    require_outputs(config, run_options(command));
    if (command.init_from && !command.resume) {
        const HfWeights readable(*command.init_from, config.model, layout);
        print(text("weights             ", *command.init_from, ": as the model needs them\n"));
    }
    print(print_plan(config, layout, schedules, plan));
    if (command.trains() || command.export_dir) {
        for (const std::string& refusal : hf_refusals(config.model)) print("note: " + refusal + "\n");
    }
    if (const auto tokenizer = data_tokenizer(command)) {
        print(text("tokenizer           ", tokenizer->file.string(), ": ", tokenizer->vocab_size, " tokens, SHA-256 ",
                   tokenizer->sha256, "\n"));
    }
    if (command.trains()) {
        print(checkpoint_line(config, schedules));
        if (const auto prompts = training_prompts(command)) {
            print(text("samples             every ", config.samples.interval, " steps, ", prompts->starts.size(),
                       " of up to ", config.samples.tokens, " tokens\n"));
        }
        const TrainingData data = open_training_data(config);
        print_data(config, data.evaluation, text(data.train->sequences(), " training and "));
    } else if (command.eval) {
        print_data(config, open_evaluation_data(config), "");
    }
    if (passes.empty()) return kExitDone;
    const std::vector<CpuWork> works = works_of(command, schedules);
    if (const std::string why = why_not_gpu(config, passes); !why.empty())
        print("note: on the CPU, because " + why + "\n");
    if (device == DeviceChoice::cpu) {
        for (const CpuWork& work : works) print(cpu_time_line(work));
    }
    print(fit_line(config, device, passes, plan, rank));
    // A run that continues has some steps done.
    if (!command.resume) require_patience(config, passes, works);
    return kExitDone;
}

}  // namespace coda
