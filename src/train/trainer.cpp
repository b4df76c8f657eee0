#include "src/train/trainer.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <tuple>

#include "src/core/build_id.h"
#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/io/checkpoint.h"
#include "src/io/hf.h"
#include "src/train/batch_dump.h"
#include "src/train/device.h"
#include "src/train/learning_rate.h"
#include "src/train/model_state.h"
#include "src/train/multiple_choice.h"
#include "src/train/nonfinite.h"
#include "src/train/plan_report.h"

namespace coda {

namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// NaN without the sign that an operation happened to give it: "-nan" reads like a number.
double unsigned_nan(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

double seconds_now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void check_outputs(const CommandLine& command) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (command.export_dir) check_export_folder(*command.export_dir);
    const fs::path run = command.config.output.directory, log = run / "log.jsonl";
    require(!command.trains() || command.resume || !fs::exists(log, error), log.string(), " exists: ", run.string(),
            " already holds a run; continue it with --resume, or choose another --output.directory");
    for (const auto& [flag, file] :
         {std::pair("--timing ", command.timing), {"--dump-batches ", command.dump_batches}}) {
        if (!file) continue;
        const fs::path folder = fs::absolute(*file).parent_path();
        require(fs::is_directory(folder, error), flag, *file, ": there is no folder ", folder.string());
        require(!fs::is_directory(*file, error), flag, *file, ": is a folder; give the name of a file");
        require(::access(folder.c_str(), W_OK) == 0, flag, *file, ": the folder ", folder.string(),
                " cannot be written to");
    }
}

std::pair<std::unique_ptr<Loader>, std::unique_ptr<Loader>> open_loaders(const Config& config) {
    const TrainingConfig& training = config.training;
    Datasets data = open_datasets(config.data, training.seq_len, config.model.vocab_size);
    const LoaderOptions shuffled{.seq_len = training.seq_len,
                                 .vocab = config.model.vocab_size,
                                 .shuffle = config.data.shuffle,
                                 .repeat = true,
                                 .seed = training.seed};
    LoaderOptions in_order = shuffled;
    in_order.shuffle = false;
    in_order.repeat = false;
    const std::int64_t step = training.micro_batch_size * training.grad_accumulation_steps;
    return {std::make_unique<Loader>(std::move(data.train), shuffled, step),
            std::make_unique<Loader>(std::move(data.val), in_order, 1)};
}

std::vector<EvaluationShard> open_evaluations(const Config& config) {
    return open_evaluation_shards(config.evaluation.files, config.model.vocab_size, config.training.seq_len);
}

std::string evaluation_line(const EvaluationRecord& record) {
    return text(record.name, ": acc ", json_number(record.acc), ", acc_norm ", json_number(record.acc_norm), " over ",
                record.examples, " examples");
}

Trainer::Trainer(const CommandLine& command)
    : command_(command),
      tokenizer_(open_tokenizer(command.config, command.resume)),
      layout_(parameter_layout(command.config.model)) {
    const Config& config = command_.config;
    device_ = resolve_device(config);
    require_device(config, device_);
    if (const std::string why = why_not_gpu(config); !why.empty()) console_.line("note: on the CPU, because " + why);

    std::tie(train_, val_) = open_loaders(config);
    evaluations_ = open_evaluations(config);
    schedules_ = build_schedules(config.model, layout_, schedule_options(config, precision_of(device_)));
    plan_ = plan_and_check(schedules_);
    step_flops_ = step_flops(config, schedules_);
    require_fit_on(config, device_, plan_);
    executor_ = make_executor(device_, schedules_, plan_);
    feed_ = std::make_unique<Feed>(*executor_, schedules_.host, config.training.seq_len,
                                   static_cast<std::int32_t>(config.model.bos_token_id.value_or(-1)));
    if (command_.timing) {
        timing_ = std::make_unique<TimingRecorder>(schedules_, executor_->peaks(), executor_->asynchronous());
    }

    const std::vector<double> rope = rope_table(config.model, config.training.seq_len);
    const std::vector<float> single(rope.begin(), rope.end());
    executor_->upload(schedules_.host.rope, single.data());
}

std::int64_t Trainer::sequences_per_step() const {
    return command_.config.training.micro_batch_size * command_.config.training.grad_accumulation_steps;
}
std::int64_t Trainer::tokens_per_step() const { return sequences_per_step() * command_.config.training.seq_len; }

std::int64_t Trainer::sequences_before(std::int64_t step) const {
    return done_sequences_ + (step - 1 - done_) * sequences_per_step();
}
std::int64_t Trainer::tokens_after(std::int64_t step) const {
    return done_tokens_ + (step - done_) * tokens_per_step();
}

void Trainer::prepare_weights() {
    const Config& config = command_.config;
    if (command_.resume) {
        const auto skipped = [&](const std::string& message) { std::fprintf(stderr, "%s\n", message.c_str()); };
        if (const auto newest = newest_checkpoint(run_directory(), skipped)) {
            check_resumable(newest->state);
            load_state(*executor_, schedules_, layout_, *newest);
            done_ = newest->step;
            done_sequences_ = newest->state.at("sequences").get<std::int64_t>();
            done_tokens_ = newest->state.at("tokens").get<std::int64_t>();
            resumed_ = true;
            console_.line(text("resumed from ", newest->folder.string(), " at step ", done_));
            return;
        }
        require(command_.trains(), "--resume: there is no complete checkpoint in ", run_directory().string(),
                ", so no weights to take from it; check --output.directory");
        console_.line(text("no complete checkpoint in ", run_directory().string(), ": starting from the beginning"));
    }
    if (command_.init_from) {
        import_state(*executor_, schedules_, layout_, *command_.init_from);
        console_.line(text("weights from ", *command_.init_from));
    } else {
        initialise_state(*executor_, schedules_, config.model, layout_, config.training.seed);
    }
}

void Trainer::check_resumable(const nlohmann::json& saved) {
    check_tokenizer(tokenizer_, saved);
    const nlohmann::json& was = saved.at("config");
    const nlohmann::json& now = command_.resolved;
    // Model keys that no result of a training step depends on.
    const std::set<std::string> free = {"model.max_position_embeddings", "model.initializer_range",
                                        "model.eos_token_id"};
    for (const char* section : {"model", "data", "training", "optimizer", "lr_schedule"}) {
        for (const auto& [name, value] : now.at(section).items()) {
            const nlohmann::json before = was.at(section).value(name, value);
            if (before == value) continue;
            const std::string key = text(section, ".", name);
            if ((section == std::string_view("model") && !free.contains(key)) || key == "optimizer.moments") {
                throw UsageError(text("--resume: ", key, " is ", value.dump(), ", but the checkpoint's is ",
                                      before.dump(), "; make them agree, or use another output.directory"));
            }
            console_.line(text("note: ", key, " was ", before.dump(), " and is now ", value.dump()));
        }
    }
}

void Trainer::open_log() {
    const std::filesystem::path path = run_directory() / "log.jsonl";
    const RunHeader header{.config = command_.resolved,
                           .device = executor_->device_name(),
                           .build = build_id(),
                           .command = command_.command,
                           .tokenizer = tokenizer_ ? tokenizer_->record() : nlohmann::json()};
    make_folders(run_directory());
    if (tokenizer_) keep_tokenizer(*tokenizer_, run_directory());
    log_ = command_.resume ? RunLog::resume(path, done_, header) : RunLog::create(path, header);
    replace_file(run_directory() / "plan.json", bytes_of(plan_json(layout_, schedules_, plan_).dump(1) + "\n"));
}

void Trainer::run_pass(Pass pass) {
    if (timing_ && timing_->times_ops()) {
        executor_->run_observed(pass, *timing_);
    } else {
        executor_->run(pass);
    }
}

void Trainer::run_micro_batches(std::int64_t step, const std::function<void(Pass)>& run) {
    const TrainingConfig& training = command_.config.training;
    const std::int64_t first = sequences_before(step);
    // The loss is a mean over the valid targets of the whole step, so they are counted before its first micro-batch.
    std::vector<TokenBatch> batches;
    std::int64_t valid = 0;
    for (std::int64_t i = 0; i < training.grad_accumulation_steps; ++i) {
        batches.push_back(
            load_batch(*train_, first + i * training.micro_batch_size, training.micro_batch_size, training.seq_len));
        valid += batches.back().valid;
    }
    upload_scalar(*executor_, schedules_.host.alpha, 1.0 / static_cast<double>(std::max<std::int64_t>(1, valid)));
    for (std::size_t i = 0; i < batches.size(); ++i) {
        feed_->upload(batches[i]);
        run(i == 0 ? Pass::first : Pass::further);
    }
}

void Trainer::upload_update_scalars(std::int64_t step, double lr) {
    const OptimizerConfig& optimizer = command_.config.optimizer;
    const HostViews& host = schedules_.host;
    const auto t = static_cast<double>(step);
    upload_scalar(*executor_, host.lr, lr);
    upload_scalar(*executor_, host.correction1, 1.0 / (1.0 - std::pow(optimizer.beta1, t)));
    upload_scalar(*executor_, host.correction2, 1.0 / (1.0 - std::pow(optimizer.beta2, t)));
    upload_scalar(*executor_, host.step, t);
}

Trainer::StepUnderWay Trainer::start_step(std::int64_t step) {
    const Config& config = command_.config;
    const HostViews& host = schedules_.host;
    StepUnderWay under_way;
    under_way.step = step;
    under_way.started = seconds_now();
    under_way.lr = learning_rate(config.optimizer, config.lr_schedule, config.training.steps, step);
    if (timing_) timing_->begin_step(step);

    run_micro_batches(step, [&](Pass pass) { run_pass(pass); });
    upload_update_scalars(step, under_way.lr);
    run_pass(Pass::update);
    under_way.readback = executor_->read_scalars({host.loss, host.norm, host.skip});
    return under_way;
}

Trainer::StepResult Trainer::result_of(StepUnderWay& under_way) {
    const std::vector<double> values = under_way.readback->wait();
    const double now = seconds_now();
    StepResult result;
    result.loss = unsigned_nan(values[0]);
    result.norm = unsigned_nan(values[1]);
    result.skipped = values[2] != 0;
    result.lr = under_way.lr;
    // The device began with it when it was there and the step before was done.
    result.ms = (now - std::max(under_way.started, settled_)) * 1000;
    settled_ = now;
    if (timing_) timing_->end_step(result.ms);
    return result;
}

void Trainer::settle(StepUnderWay& under_way) {
    const StepResult result = result_of(under_way);
    report(under_way.step, result);
    if (result.skipped) stop_non_finite(under_way.step, result);
}

void Trainer::stop_non_finite(std::int64_t step, const StepResult& result) {
    // The update was skipped, and those of any later step with it, so the weights are still those that this step began
    // with.
    NonFiniteFinder finder(*executor_, schedules_);
    run_micro_batches(step, [&](Pass pass) { executor_->run_observed(pass, finder); });
    const std::string culprit = finder.found().value_or("no op on its own: the gradient norm overflowed");
    throw NonFiniteError(text("step ", step, ": loss ", result.loss, ", gradient norm ", result.norm,
                              "; the first result that is not finite: ", culprit,
                              ". The weights were not updated; try a lower optimizer.learning_rate, more "
                              "lr_schedule.warmup_steps, or --resume from the last checkpoint"));
}

int Trainer::check_step(std::int64_t step) {
    std::int64_t operations = 0, beyond = 0;
    const auto print = [&](const OracleLine& line) {
        console_.line(line.text);
        ++operations;
        if (!line.ok) ++beyond;
    };
    const auto checked = [&](Pass pass) { executor_->run_checked(pass, print); };
    run_micro_batches(step, checked);
    upload_update_scalars(step, learning_rate(command_.config.optimizer, command_.config.lr_schedule,
                                              command_.config.training.steps, step));
    checked(Pass::update);
    console_.line(text("oracle at step ", step, ": ", operations, " operations, ", beyond, " beyond their tolerance"));
    return beyond == 0 ? kExitDone : kExitRuntime;
}

double Trainer::evaluate() {
    const TrainingConfig& training = command_.config.training;
    double sum = 0;
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < command_.config.validation.batches; ++i) {
        const std::int64_t first = i * training.micro_batch_size;
        if (first >= val_->sequences()) break;
        const TokenBatch batch = load_batch(*val_, first, training.micro_batch_size, training.seq_len);
        upload_scalar(*executor_, schedules_.host.alpha, 1.0 / static_cast<double>(batch.valid));
        feed_->upload(batch);
        run_pass(Pass::evaluate);
        sum += download_scalar(*executor_, schedules_.host.val_loss) * static_cast<double>(batch.valid);
        total += batch.valid;
    }
    validation_tokens_ = total;
    return total > 0 ? sum / static_cast<double>(total) : std::numeric_limits<double>::quiet_NaN();
}

void Trainer::validate(std::int64_t step) {
    const double loss = evaluate();
    log_->write_validation(step, loss);
    console_.line(
        text("validation at step ", step, ": loss ", json_number(loss), " over ", validation_tokens_, " tokens"));
}

std::vector<EvaluationRecord> Trainer::evaluate_choices() {
    const TrainingConfig& training = command_.config.training;
    const auto losses_of = [&](const TokenBatch& batch) {
        upload_scalar(*executor_, schedules_.host.alpha, 1.0 / static_cast<double>(batch.valid));
        feed_->upload(batch);
        run_pass(Pass::evaluate);
        return download_vector(*executor_, schedules_.host.losses);
    };
    std::vector<EvaluationRecord> records;
    for (const EvaluationShard& shard : evaluations_) {
        const MultipleChoiceResult result = evaluate_multiple_choice(
            shard, command_.config.evaluation.limit, training.micro_batch_size, training.seq_len, losses_of);
        if (result.truncated > 0) {
            console_.line(text("note: ", shard.name(), ": ", result.truncated, " of ", result.rows,
                               " rows are longer than training.seq_len and lost the beginning of their context"));
        }
        records.push_back({.step = done_,
                           .name = shard.name(),
                           .acc = result.acc,
                           .acc_norm = result.acc_norm,
                           .examples = result.examples});
    }
    return records;
}

void Trainer::write_evaluations(std::int64_t step) {
    for (EvaluationRecord& record : evaluate_choices()) {
        record.step = step;
        log_->write_evaluation(record);
        console_.line(text("evaluation at step ", step, ": ", evaluation_line(record)));
    }
}

void Trainer::sample(TextCodec* codec) {
    const ModelConfig& model = command_.config.model;
    const SampleRequest& request = *command_.sample;
    const char* space = "";
    const auto print = [&](std::int32_t token) {
        const std::string shown = codec ? codec->decode(token) : text(std::exchange(space, " "), token);
        std::fwrite(shown.data(), 1, shown.size(), stdout);
        std::fflush(stdout);
    };
    const std::int64_t separator = command_.config.data.document_mask ? model.bos_token_id.value_or(-1) : -1;
    Sampler sampler(*executor_, schedules_.host, model.vocab_size, static_cast<std::int32_t>(separator),
                    [&] { run_pass(Pass::sample); });
    std::fputs(request.prompt.value_or("").c_str(), stdout);
    for (const std::int32_t token : request.prompt_tokens) print(token);
    sampler.sample(prompt_tokens(request, model, codec), request, print);
    std::fputc('\n', stdout);
}

void Trainer::checkpoint(std::int64_t step) {
    log_->sync();
    nlohmann::json state = {
        {"config", command_.resolved}, {"sequences", sequences_before(step + 1)}, {"tokens", tokens_after(step)}};
    if (tokenizer_) state["tokenizer"] = tokenizer_->record();
    save_state(*executor_, schedules_, run_directory(), step, state, command_.config.checkpoint.keep);
}

void Trainer::report(std::int64_t step, const StepResult& result) {
    const double tokens_per_s = static_cast<double>(tokens_per_step()) / (result.ms / 1000);
    const double left = static_cast<double>(command_.config.training.steps - step);
    console_.step({.step = step,
                   .steps = command_.config.training.steps,
                   .loss = result.loss,
                   .grad_norm = result.norm,
                   .lr = result.lr,
                   .ms = result.ms,
                   .tokens_per_s = tokens_per_s,
                   .eta_s = step_ms_.add(result.ms) / 1000 * left});
    log_->write({.step = step,
                 .loss = result.loss,
                 .grad_norm = result.norm,
                 .lr = result.lr,
                 .tokens = tokens_after(step),
                 .ms = result.ms,
                 .tokens_per_s = tokens_per_s,
                 .mfu = step_flops_ / (result.ms / 1000) / executor_->peaks().flops_per_s,
                 .memory_gib = static_cast<double>(plan_.arena_bytes() + executor_->overhead_bytes()) / kGiB});
}

int Trainer::train() {
    const Config& config = command_.config;
    const std::int64_t steps = config.training.steps;
    if (command_.dump_batches) {
        dump_batches(*command_.dump_batches, *train_, sequences_before(done_ + 1),
                     std::max<std::int64_t>(0, steps - done_) * config.training.grad_accumulation_steps,
                     config.training.micro_batch_size, config.training.seq_len);
    }
    open_log();
    console_.line(text("training ", count_text(static_cast<double>(layout_.parameters)), " parameters on ",
                       executor_->device_name(), ": ", steps - done_, " steps of ", tokens_per_step(),
                       " tokens, arena ", bytes_text(static_cast<double>(plan_.arena_bytes())), ", output in ",
                       run_directory().string()));
    if (resumed_ && done_ >= steps) {
        console_.line(text("nothing to do: the checkpoint is already at step ", done_, " of ", steps));
        return kExitDone;
    }

    watch_interrupts();
    const bool look_at_once = !executor_->asynchronous() || timing_;
    std::optional<StepUnderWay> before;  // the host looks at a step's results when the next one is enqueued
    for (std::int64_t step = done_ + 1; step <= steps; ++step) {
        if (command_.oracle_step == step) {
            if (before) settle(*before);
            return check_step(step);
        }
        StepUnderWay now = start_step(step);
        if (before) settle(*before);
        before.reset();

        const bool last = step == steps, stop = interrupted();
        const auto due = [&](std::int64_t interval) { return interval > 0 && step % interval == 0; };
        const bool validates = due(config.validation.interval) || (last && config.validation.batches > 0);
        const bool evaluates = due(config.evaluation.interval) || last;
        const bool saves = due(config.checkpoint.interval) || (last && config.checkpoint.at_end) || stop;
        if (!look_at_once && !validates && !evaluates && !saves) {
            before = std::move(now);
            continue;
        }
        settle(now);
        if (validates) validate(step);
        if (evaluates) write_evaluations(step);
        if (saves) checkpoint(step);
        if (stop && !last) {
            write_timing();
            console_.line(text("interrupted: step ", step, " is complete and saved; continue with --resume"));
            return kExitInterrupted;
        }
    }
    write_timing();
    return kExitDone;
}

void Trainer::write_timing() {
    if (!timing_) return;
    timing_->write(*command_.timing, {{"device", executor_->device_name()},
                                      {"build", build_id()},
                                      {"command", command_.command},
                                      {"config", command_.resolved}});
    console_.line(timing_->table());
    console_.line(text("timing in ", *command_.timing, ", trace in ", trace_file_of(*command_.timing).string()));
}

void Trainer::export_weights() {
    export_state(*executor_, schedules_, command_.config.model, layout_, *command_.export_dir);
    console_.line(text("weights of step ", done_, " in ", *command_.export_dir));
}

}  // namespace coda
