#include "src/train/program/run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/core/build_id.h"
#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/core/printable.h"
#include "src/core/standard_streams.h"
#include "src/engine/device.h"
#include "src/engine/ranks.h"
#include "src/train/program/asked.h"
#include "src/train/program/describe.h"
#include "src/train/program/use_weights.h"
#include "src/train/trainer.h"

namespace coda {

namespace {

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

/// Where two configurations differ first: "training.steps is 100 for rank 0 and 200 for rank 1".
std::string difference(const nlohmann::json& first, const nlohmann::json& other, std::size_t rank) {
    const nlohmann::json changes = nlohmann::json::diff(first, other);
    if (changes.empty()) return "";
    const std::string path = changes[0]["path"];
    std::string key = path.substr(1);
    std::replace(key.begin(), key.end(), '/', '.');
    const auto value = [&](const nlohmann::json& of) {
        const nlohmann::json::json_pointer pointer(path);
        return of.contains(pointer) ? of[pointer].dump() : "not there";
    };
    return text(key, " is ", value(first), " for rank 0 and ", value(other), " for rank ", rank);
}

/// All ranks must do the same.
void require_alike(const Ranks& ranks, const CommandLine& command) {
    const std::vector<std::string> builds = ranks.share_text(build_id()),
                                   configs = ranks.share_text(command.resolved.dump()),
                                   commands = ranks.share_text(command.command);
    for (std::size_t rank = 1; rank < builds.size(); ++rank) {
        std::string problem;
        if (builds[rank] != builds[0]) {
            problem = text("rank 0 runs ", builds[0], " and rank ", rank, " runs ", builds[rank]);
        } else if (configs[rank] != configs[0]) {
            problem = difference(nlohmann::json::parse(configs[0]), nlohmann::json::parse(configs[rank]), rank);
        } else if (commands[rank] != commands[0]) {
            problem = text("rank 0 was started as ", commands[0], " and rank ", rank, " as ", commands[rank]);
        }
        if (!problem.empty()) ranks.stop<UsageError>(problem + ": all ranks need the same");
    }
}

/// What prints an answer, or uses weights.
int answer(const CommandLine& command, int ranks) {
    if (command.help) return print(*command.help), kExitDone;
    if (command.version) return print(build_id() + "\n"), kExitDone;
    if (command.print_config) return print(printed_config(command.resolved) + "\n"), kExitDone;
    if (command.dry_run || command.print_schedule) return describe(command, ranks);
    return use_weights(command);
}

int train(const CommandLine& command, Team* team) {
    watch_save_requests();
    RunOptions options = run_options(command);
    options.team = team;
    TrainingData data;
    Ranks(team).together([&] {
        options.prompts = training_prompts(command);
        data = Trainer::open(command.config, options);
    });
    return Trainer(command.config, options, std::move(data)).train();
}

}  // namespace

int run(const CommandLine& command, Team* team) {
    const Ranks ranks(team);
    require_alike(ranks, command);
    ranks.together([&] {
        if (command.help || command.version || command.print_config) return;
        check_modes(command);
        const bool uses_weights = !command.trains() && !command.dry_run && !command.print_schedule;
        if (uses_weights && ranks.count() > 1)
            throw UsageError("--eval and --export use one GPU: start coda_train, or one rank");
    });
    if (command.runs()) return train(command, team);
    return ranks.leads() ? answer(command, std::max(ranks.count(), static_cast<int>(command.ranks))) : kExitDone;
}

}  // namespace coda
