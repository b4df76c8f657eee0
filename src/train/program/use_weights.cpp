#include "src/train/program/use_weights.h"

#include <cmath>

#include "src/core/console.h"
#include "src/core/errors.h"
#include "src/core/standard_streams.h"
#include "src/engine/device.h"
#include "src/engine/finite_state.h"
#include "src/io/hf.h"
#include "src/train/calibration.h"
#include "src/train/evaluator.h"
#include "src/train/program/asked.h"
#include "src/train/run_files.h"

namespace coda {

namespace {

/// The tokenizer that an export copies. One that cannot be read must not stop the export of the weights.
std::optional<RunTokenizer> exported_tokenizer(const CommandLine& command, Console& console) {
    try {
        return open_tokenizer(command.config, command.resume);
    } catch (const Error& error) {
        console.line(text("note: the export is without a tokenizer: ", error.what()));
        return std::nullopt;
    }
}

void print_evaluation(Session& session, EvaluationData data, std::int64_t step, Console& console) {
    Evaluator evaluator(session, std::move(data), console);
    const ValidationLoss validation = evaluator.validation();
    if (validation.tokens > 0 && !std::isfinite(validation.loss)) {
        throw NonFiniteError(text("the validation loss is ", validation.loss));
    }
    print(text("validation ", loss_text(validation), "\n"));
    for (const EvaluationRecord& record : evaluator.choices(step)) print(evaluation_line(record) + "\n");
}

}  // namespace

int use_weights(const CommandLine& command) {
    const RunOptions options = run_options(command);
    const Config& config = command.config;
    require_outputs(config, options);
    if (command.export_dir) {
        check_export_folder(*command.export_dir);
        to_hf_json(config.model);  // refuses a model that transformers does not have before any work is done
    }

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
    if (command.export_dir && command.export_dtype == ExportDtype::int4) {
        const std::string note = int4_export_note(config.model, layout);
        if (!note.empty()) console.line(note);
    }
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

}  // namespace coda
