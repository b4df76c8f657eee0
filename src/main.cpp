#include <cmath>
#include <cstdio>
#include <exception>

#include "src/config/command_line.h"
#include "src/core/build_id.h"
#include "src/core/console.h"
#include "src/core/errors.h"
#include "src/io/run_tokenizer.h"
#include "src/text_codec.h"
#include "src/train/device.h"
#include "src/train/plan_report.h"
#include "src/train/trainer.h"

namespace {

using namespace coda;

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

/// --dry-run and --print-schedule: nothing is allocated.
int describe(const CommandLine& command) {
    const Config& config = command.config;
    const DeviceChoice device = resolve_device(config);
    const Precision precision = precision_of(device);
    const ParameterLayout layout = parameter_layout(config.model);
    const Schedules schedules = build_schedules(config.model, layout, schedule_options(config, precision));
    const MemoryPlan plan = plan_and_check(schedules);
    if (command.print_schedule) print(print_schedule(schedules));
    if (!command.dry_run) return kExitDone;

    print(print_plan(config, layout, schedules, plan));
    if (const auto tokenizer = open_tokenizer(config, command.resume)) {
        print(text("tokenizer           ", tokenizer->file.string(), ": ", tokenizer->vocab_size, " tokens, SHA-256 ",
                   tokenizer->sha256, "\n"));
    }
    const auto [train, val] = open_loaders(config);
    print(text("data                ", train->sequences(), " training and ", val->sequences(),
               " validation sequences of ", config.training.seq_len, " tokens\n"));
    for (const EvaluationShard& shard : open_evaluations(config)) {
        print(text("evaluation          ", shard.name(), ": ", shard.examples(), " examples\n"));
    }
    print(fit_line(config, device, plan));
    return kExitDone;
}

int run(const CommandLine& command) {
    if (command.dump_batches && !command.trains()) {
        throw UsageError(
            "--dump-batches writes what a training run reads; --eval, --export and --sample train nothing");
    }
    if (command.timing && command.export_dir && !command.eval && !command.sample) {
        throw UsageError("--timing measures a training run, --eval or --sample; --export runs nothing");
    }
    std::unique_ptr<TextCodec> codec;
    if (command.sample) {
        codec = text_codec(*command.sample, command.config, command.resume);
        prompt_tokens(*command.sample, command.config.model, codec.get());  // a bad prompt ends here
    }
    check_outputs(command);
    Trainer trainer(command);
    trainer.prepare_weights();
    if (command.eval) {
        const double loss = trainer.evaluate();
        // abs: the sign of a NaN means nothing, and "-nan" reads like a number.
        if (!std::isfinite(loss)) throw NonFiniteError(text("the validation loss is ", std::abs(loss)));
        print(text("validation loss ", json_number(loss), " over ", trainer.validation_tokens(), " tokens\n"));
        for (const EvaluationRecord& record : trainer.evaluate_choices()) print(evaluation_line(record) + "\n");
    }
    if (command.sample) trainer.sample(codec.get());
    if (command.export_dir) trainer.export_weights();
    if (command.trains()) return trainer.train();
    trainer.write_timing();
    return kExitDone;
}

int dispatch(int argc, char** argv) {
    const CommandLine command = parse_command_line(argc, argv);
    if (command.help) return print(*command.help), kExitDone;
    if (command.version) return print(build_id() + "\n"), kExitDone;
    if (command.print_config) return print(command.resolved.dump(2) + "\n"), kExitDone;
    if (command.oracle_step && resolve_device(command.config) == DeviceChoice::cpu) {
        throw UsageError(
            "--oracle compares the GPU's kernels with an independent path, and this run is on the CPU; see --device");
    }
    if (command.dry_run || command.print_schedule) return describe(command);
    return run(command);
}

}  // namespace

int main(int argc, char** argv) {
    const auto fail = [](const char* what, int code) {
        std::fprintf(stderr, "coda_train: %s\n", what);
        return code;
    };
    try {
        return dispatch(argc, argv);
    } catch (const UsageError& error) {
        return fail(error.what(), kExitUsage);
    } catch (const NonFiniteError& error) {
        return fail(error.what(), kExitNonFinite);
    } catch (const std::exception& error) {
        return fail(error.what(), kExitRuntime);
    }
}
