#include "src/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "src/core/build_id.h"
#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/train/batch_dump.h"
#include "src/train/device.h"
#include "src/train/learning_rate.h"
#include "src/train/model_state.h"
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

/// Outputs first, which takes no reading.
TrainingData open_checked(const Config& config, const RunOptions& options) {
    require_own_directory(config, options);
    require_writable(options);
    return open_training_data(config);
}

}  // namespace

Trainer::Trainer(const Config& config, const RunOptions& options)
    : config_(config),
      options_(options),
      console_(options.out),
      data_(open_checked(config, options)),
      tokenizer_(open_tokenizer(config, options.resume)),
      session_(config_, passes_of(Mode::train), options.timing.has_value(), console_),
      weights_(config_, options_, true, tokenizer_, console_),
      evaluator_(session_, std::move(data_.evaluation), console_),
      step_flops_(step_flops(config_, session_.schedules())) {
    require_patience(config_, passes_of(Mode::train),
                     {training_work(config_, session_.schedules(), config_.training.steps - weights_.step())});
    weights_.load(session_);
}

std::int64_t Trainer::sequences_per_step() const {
    return config_.training.micro_batch_size * config_.training.grad_accumulation_steps;
}
std::int64_t Trainer::tokens_per_step() const { return sequences_per_step() * config_.training.seq_len; }

std::int64_t Trainer::sequences_before(std::int64_t step) const {
    return weights_.sequences() + (step - 1 - weights_.step()) * sequences_per_step();
}
std::int64_t Trainer::tokens_after(std::int64_t step) const {
    return weights_.tokens() + (step - weights_.step()) * tokens_per_step();
}

void Trainer::open_log() {
    const std::filesystem::path path = run_directory() / "log.jsonl";
    const RunHeader header{.config = to_json(config_),
                           .device = session_.executor().device_name(),
                           .build = build_id(),
                           .command = options_.command,
                           .tokenizer = tokenizer_ ? tokenizer_->record() : nlohmann::json()};
    make_folders(run_directory());
    if (tokenizer_) keep_tokenizer(*tokenizer_, run_directory());
    log_ = options_.resume ? RunLog::resume(path, weights_.step(), header) : RunLog::create(path, header);
    replace_file(run_directory() / "plan.json",
                 bytes_of(plan_json(session_.layout(), session_.schedules(), session_.plan()).dump(1) + "\n"));
}

void Trainer::run_micro_batches(std::int64_t step, const std::function<void(Pass)>& run) {
    const TrainingConfig& training = config_.training;
    const std::int64_t first = sequences_before(step);
    // The loss is a mean over the valid targets of the whole step, so they are counted before its first micro-batch.
    std::vector<TokenBatch> batches;
    std::int64_t valid = 0;
    for (std::int64_t i = 0; i < training.grad_accumulation_steps; ++i) {
        batches.push_back(load_batch(*data_.train, first + i * training.micro_batch_size, training.micro_batch_size,
                                     training.seq_len));
        valid += batches.back().valid;
    }
    session_.set_alpha(std::max<std::int64_t>(1, valid));
    for (std::size_t i = 0; i < batches.size(); ++i) {
        session_.feed(batches[i]);
        run(i == 0 ? Pass::first : Pass::further);
    }
}

void Trainer::upload_update_scalars(std::int64_t step, double lr) {
    const OptimizerConfig& optimizer = config_.optimizer;
    const HostViews& host = session_.host();
    const auto t = static_cast<double>(step);
    upload_scalar(session_.executor(), host.lr, lr);
    upload_scalar(session_.executor(), host.correction1, 1.0 / (1.0 - std::pow(optimizer.beta1, t)));
    upload_scalar(session_.executor(), host.correction2, 1.0 / (1.0 - std::pow(optimizer.beta2, t)));
    upload_scalar(session_.executor(), host.step, t);
}

Trainer::StepUnderWay Trainer::start_step(std::int64_t step) {
    const Config& config = config_;
    const HostViews& host = session_.host();
    StepUnderWay under_way;
    under_way.step = step;
    under_way.started = seconds_now();
    under_way.lr = learning_rate(config.optimizer, config.lr_schedule, config.training.steps, step);
    if (session_.timing()) session_.timing()->begin_step(step);

    run_micro_batches(step, [&](Pass pass) { session_.run(pass); });
    upload_update_scalars(step, under_way.lr);
    session_.run(Pass::update);
    under_way.readback = session_.executor().read_scalars({host.loss, host.norm, host.skip});
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
    if (session_.timing()) session_.timing()->end_step(result.ms);
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
    NonFiniteFinder finder(session_.executor(), session_.schedules());
    run_micro_batches(step, [&](Pass pass) { session_.executor().run_observed(pass, finder); });
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
    const auto checked = [&](Pass pass) { session_.executor().run_checked(pass, print); };
    run_micro_batches(step, checked);
    upload_update_scalars(step, learning_rate(config_.optimizer, config_.lr_schedule, config_.training.steps, step));
    checked(Pass::update);
    console_.line(text("oracle at step ", step, ": ", operations, " operations, ", beyond, " beyond their tolerance"));
    return beyond == 0 ? kExitDone : kExitRuntime;
}

void Trainer::validate(std::int64_t step) {
    const ValidationLoss validation = evaluate();
    log_->write_validation(step, validation.loss);
    console_.line(text("validation at step ", step, ": loss ", json_number(validation.loss), " over ",
                       validation.tokens, " tokens"));
}

void Trainer::write_evaluations(std::int64_t step) {
    for (const EvaluationRecord& record : evaluator_.choices(step)) {
        log_->write_evaluation(record);
        console_.line(text("evaluation at step ", step, ": ", evaluation_line(record)));
    }
}

void Trainer::checkpoint(std::int64_t step) {
    log_->sync();
    nlohmann::json state = {
        {"config", to_json(config_)}, {"sequences", sequences_before(step + 1)}, {"tokens", tokens_after(step)}};
    if (tokenizer_) state["tokenizer"] = tokenizer_->record();
    save_state(session_.executor(), session_.schedules(), run_directory(), step, state, config_.checkpoint.keep);
}

void Trainer::report(std::int64_t step, const StepResult& result) {
    const double tokens_per_s = static_cast<double>(tokens_per_step()) / (result.ms / 1000);
    const double left = static_cast<double>(config_.training.steps - step);
    console_.step({.step = step,
                   .steps = config_.training.steps,
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
                 .mfu = step_flops_ / (result.ms / 1000) / session_.executor().peaks().flops_per_s,
                 .memory_gib =
                     static_cast<double>(session_.plan().arena_bytes() + session_.executor().overhead_bytes()) / kGiB});
}

int Trainer::train() {
    const Config& config = config_;
    const std::int64_t done = weights_.step(), steps = config.training.steps;
    if (options_.dump_batches) {
        dump_batches(*options_.dump_batches, *data_.train, sequences_before(done + 1),
                     std::max<std::int64_t>(0, steps - done) * config.training.grad_accumulation_steps,
                     config.training.micro_batch_size, config.training.seq_len);
    }
    open_log();
    console_.line(text("training ", count_text(static_cast<double>(session_.layout().parameters)), " parameters on ",
                       session_.executor().device_name(), ": ", steps - done, " steps of ", tokens_per_step(),
                       " tokens, arena ", bytes_text(static_cast<double>(session_.plan().arena_bytes())),
                       ", output in ", run_directory().string()));
    if (weights_.resumed() && done >= steps) {
        console_.line(text("nothing to do: the checkpoint is already at step ", done, " of ", steps));
        return kExitDone;
    }

    watch_interrupts();
    const bool look_at_once = !session_.executor().asynchronous() || session_.timing();
    std::optional<StepUnderWay> before;  // the host looks at a step's results when the next one is enqueued
    for (std::int64_t step = done + 1; step <= steps; ++step) {
        if (options_.oracle_step == step) {
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
    if (options_.timing) session_.write_timing(*options_.timing, options_.command);
}

}  // namespace coda
