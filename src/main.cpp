#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/config/command_line.h"
#include "src/core/build_id.h"
#include "src/core/console.h"
#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/core/printable.h"
#include "src/core/program.h"
#include "src/core/standard_streams.h"
#include "src/engine/device.h"
#include "src/engine/finite_state.h"
#include "src/engine/plan_report.h"
#include "src/io/hf.h"
#include "src/io/run_tokenizer.h"
#include "src/train/calibration.h"
#include "src/train/checkpoints.h"
#include "src/train/trainer.h"

namespace {

using namespace coda;

/// The passes of everything that is asked for.
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

/// What the samples of a training run follow; null without samples.
std::shared_ptr<const RunPrompts> training_prompts(const CommandLine& command) {
    if (!command.trains() || command.config.samples.interval == 0) return nullptr;
    return std::make_shared<const RunPrompts>(run_prompts(command.config, command.resume));
}

/// The tokenizer of the tokens that are read; samples have a codec of their own.
std::optional<RunTokenizer> data_tokenizer(const CommandLine& command) {
    return command.trains() || command.eval ? open_tokenizer(command.config, command.resume) : std::nullopt;
}

/// The tokenizer that an export copies. One that cannot be read must not stop the export of the weights.
std::optional<RunTokenizer> exported_tokenizer(const CommandLine& command, Console& console) {
    try {
        return open_tokenizer(command.config, command.resume);
    } catch (const Error& error) {
        console.line(text("note: the export is without a tokenizer: ", error.what()));
        return std::nullopt;
    }
}

void print_data(const Config& config, const EvaluationData& data, const std::string& training) {
    print(text("data                ", training, data.validation->sequences(), " validation sequences of ",
               config.training.seq_len, " tokens\n"));
    for (const EvaluationShard& shard : data.shards) {
        print(text("evaluation          ", shard.name(), ": ", shard.examples(), " examples\n"));
    }
}

/// What a CPU would have to do.
std::vector<CpuWork> works_of(const CommandLine& command, const Schedules& schedules) {
    const Config& config = command.config;
    std::vector<CpuWork> works;
    if (command.trains()) works.push_back(training_work(config, schedules, config.training.steps));
    if (command.eval) works.push_back(validation_work(config, schedules));
    return works;
}

/// --dry-run and --print-schedule: nothing is allocated.
int describe(const CommandLine& command) {
    const Config& config = command.config;
    const PassSet passes = passes_of(command);
    const DeviceChoice device = resolve_device(config, passes);
    const Precision precision = precision_of(config, device);
    const ParameterLayout layout = parameter_layout(config.model);
    const Schedules schedules = build_schedules(config.model, layout, schedule_options(config, precision), passes);
    const MemoryPlan plan = plan_and_check(schedules);
    if (command.print_schedule) print(print_schedule(schedules));
    if (!command.dry_run) return kExitDone;

    require_outputs(config, run_options(command));
    if (command.init_from && !command.resume) {
        const HfWeights readable(*command.init_from, layout);
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
    print(fit_line(config, device, passes, plan));
    // A run that continues has some steps done.
    if (!command.resume) require_patience(config, passes, works);
    return kExitDone;
}

void print_evaluation(Session& session, EvaluationData data, std::int64_t step, Console& console) {
    Evaluator evaluator(session, std::move(data), console);
    const ValidationLoss validation = evaluator.validation();
    // abs: the sign of a NaN means nothing, and "-nan" reads like a number.
    if (validation.tokens > 0 && !std::isfinite(validation.loss)) {
        throw NonFiniteError(text("the validation loss is ", std::abs(validation.loss)));
    }
    print(validation_line(validation) + "\n");
    for (const EvaluationRecord& record : evaluator.choices(step)) print(evaluation_line(record) + "\n");
}

/// --eval and --export: weights are used and not changed.
int use_weights(const CommandLine& command, const RunOptions& options) {
    const Config& config = command.config;
    require_outputs(config, options);
    if (command.export_dir) check_export_folder(*command.export_dir);

    Console console(stdout, Console::Loss::thrown);
    const PassSet passes = passes_of(command);
    EvaluationData data;
    if (command.eval) data = open_evaluation_data(config);
    TrainingData calibration;
    if (command.calibrate > 0) calibration = open_training_data(config);
    std::optional<Session> session;
    if (!passes.empty()) session.emplace(config, passes, options.timing.has_value(), console);
    if (session) require_patience(config, passes, works_of(command, session->schedules()));
    const ParameterLayout layout = parameter_layout(config.model);
    const std::optional<RunTokenizer> tokenizer =
        command.export_dir ? exported_tokenizer(command, console) : data_tokenizer(command);
    const WeightsSource source(config, options.weights(), false, tokenizer, console);
    const std::unique_ptr<MasterWeights> weights = source.open(layout);
    if (session) session->set_weights(*weights);

    if (command.eval) print_evaluation(*session, std::move(data), source.step(), console);
    if (command.export_dir) {
        for (const std::string& refusal : hf_refusals(config.model)) console.line("note: " + refusal);
        require_finite_weights(*weights, layout);
        std::unique_ptr<MasterWeights> rounded;
        if (command.calibrate > 0)
            rounded = calibrated(*session, std::move(calibration), command.calibrate, layout, *weights, console);
        export_weights(*command.export_dir, config.model, layout, rounded ? *rounded : *weights, command.export_dtype,
                       kMaxShardBytes, tokenizer);
        console.line(text("weights of step ", source.step(), " in ", *command.export_dir));
    }
    if (session && options.timing) session->write_timing(*options.timing, options.command);
    return kExitDone;
}

void check_modes(const CommandLine& command) {
    if (command.dump_batches && !command.trains()) {
        throw UsageError("--dump-batches writes what a training run reads; --eval and --export train nothing");
    }
    if (command.tensor_stats && !command.trains()) {
        throw UsageError("--tensor-stats watches a training run; --eval and --export train nothing");
    }
    if (command.tensor_stats && command.config.precision.has_fp8) {
        throw UsageError(
            "--tensor-stats reads what bf16 GEMMs multiply, and precision has FP8 ones, whose log has amax of every "
            "kind of tensor; give --precision bf16");
    }
    if (command.tensor_stats && command.timing) {
        throw UsageError("--timing and --tensor-stats: the one's work would be in the other's times; give one of them");
    }
    if (command.timing && command.export_dir && !command.eval) {
        throw UsageError("--timing measures a training run or --eval; --export runs nothing");
    }
    if (command.timing && command.oracle_step) {
        throw UsageError("--timing and --oracle: a run that --oracle ends has no times to write; give one of them");
    }
    if (command.oracle_step && resolve_device(command.config, passes_of(command)) == DeviceChoice::cpu) {
        throw UsageError(
            "--oracle compares the GPU's kernels with an independent path, and this run is on the CPU; see --device");
    }
}

/// The configuration as JSON, which says every character in ASCII where some are not for a terminal.
std::string printed_config(const nlohmann::json& resolved) {
    const std::string json = resolved.dump(2);
    return printable(json) == json ? json : resolved.dump(2, ' ', true);
}

/// What prints an answer: everything but training.
int answer(const CommandLine& command) {
    if (command.help) return print(*command.help), kExitDone;
    if (command.version) return print(build_id() + "\n"), kExitDone;
    if (command.print_config) return print(printed_config(command.resolved) + "\n"), kExitDone;
    check_modes(command);
    if (command.dry_run || command.print_schedule) return describe(command);
    return use_weights(command, run_options(command));
}

int dispatch(int argc, char** argv) {
    const CommandLine command = parse_command_line(argc, argv);
    const bool trains = command.trains() && !command.help && !command.version && !command.print_config &&
                        !command.dry_run && !command.print_schedule;
    if (trains) {
        check_modes(command);
        watch_save_requests();
        RunOptions options = run_options(command);
        options.prompts = training_prompts(command);
        return Trainer(command.config, options).train();
    }
    const int code = answer(command);
    close_standard_output();
    return code;
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("coda_train", [&] { return dispatch(argc, argv); });
}
