#include "src/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/core/build_id.h"
#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/core/unsigned_nan.h"
#include "src/engine/device.h"
#include "src/engine/finite_state.h"
#include "src/engine/model_state.h"
#include "src/engine/nonfinite.h"
#include "src/engine/plan_report.h"
#include "src/io/data_fingerprint.h"
#include "src/train/batch_dump.h"
#include "src/train/learning_rate.h"
#include "src/train/rank_options.h"

namespace coda {

namespace {

constexpr const char* kSpikeWatch = "spike_watch";  // in a checkpoint's state

double seconds_now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

/// Taken in place: a lock does not move.
std::unique_ptr<RunLock> lock_of(const Ranks& ranks, const Config& config, const RunOptions& options) {
    return ranks.leads() ? std::make_unique<RunLock>(config.output.directory, options.command) : nullptr;
}

}  // namespace

TrainingData Trainer::open(const Config& config, const RunOptions& options) {
    const RunOptions own = options_of_rank(config, options);
    if (Ranks(options.team).leads()) {
        require_own_directory(config, own);
        require_outputs(config, own);  // before the data, as it takes no reading
    }
    return open_training_data(config);
}

Trainer::Trainer(const Config& config, const RunOptions& options) : Trainer(config, options, open(config, options)) {}

Trainer::Trainer(const Config& config, const RunOptions& options, TrainingData data)
    : config_(config),
      options_(options_of_rank(config, options)),
      ranks_(options.team),
      console_(options_.out, options_.oracle_step ? Console::Loss::thrown : Console::Loss::tolerated),
      data_(std::move(data)),
      tokenizer_(open_tokenizer(config, options.resume)),
      lock_(lock_of(ranks_, config, options)),
      session_(config_, training_passes(config_), options_.timing.has_value(), console_, {}, options.team),
      weights_(config_, options_.weights(), true, tokenizer_, console_),
      scales_(session_.executor(), session_.schedules(), config_.precision),
      passes_(session_, scales_),
      checkpoints_(session_, ranks_, console_),
      identity_(identity()),
      evaluator_(session_, std::move(data_.evaluation), console_),
      looks_at_once_(options.timing.has_value()),
      step_flops_(step_flops(config_, session_.schedules())),
      watch_(config_.training.skip_spikes) {
    if (ranks_.leads()) {
        require_own_directory(config_, options_);  // again: another run may have come before the lock
    }
    require_same_inputs(ranks_, identity_, weights_.step(), config_.output.directory);
    require_patience(config_, training_passes(config_),
                     {training_work(config_, session_.schedules(), config_.training.steps - weights_.step())});
    if (const nlohmann::json* state = weights_.saved_state()) {
        check_identity(identity_, *state, options_.allow, console_);
    }
    weights_.load(session_);
    scales_.load(weights_.checkpoint());
    weights_.release();
    if (config_.samples.interval > 0) samples_.emplace(session_, options_.prompts, options_.decoder);
    watch_.restore(weights_.saved(kSpikeWatch));
}

RunIdentity Trainer::identity() {
    return {.device = session_.executor().device_model(),
            .precision = precision_text(config_.precision, session_.host().working.dtype),
            .data = {{"train", data_fingerprint(data_.train->ranges())},
                     {"validation", data_fingerprint(data_.evaluation.validation->ranges())}}};
}

std::int64_t Trainer::micro_batches() const { return config_.training.grad_accumulation_steps / ranks_.count(); }

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
    const std::int64_t done = weights_.step();
    const RunHeader header{.config = to_json(config_),
                           .device = session_.executor().device_name(),
                           .build = build_id(),
                           .command = options_.command,
                           .tokenizer = tokenizer_ ? tokenizer_->record() : nlohmann::json()};
    const auto notice = [this](const std::string& said) { console_.line(said); };
    if (tokenizer_) keep_tokenizer(*tokenizer_, run_directory());
    log_ = options_.resume ? RunLog::resume(path, done, header, notice) : RunLog::create(path, header, notice);
    if (weights_.resumed() && done < config_.training.steps) log_->write_start(done, header);
    replace_file(run_directory() / "plan.json",
                 bytes_of(plan_json(session_.layout(), session_.schedules(), session_.plan()).dump(1) + "\n"));
}

void Trainer::restore_folder() {
    if (!ranks_.leads() || (lock_->intact() && log_->is_at_path())) return;
    const std::string folder = run_directory().string();
    try {
        if (!lock_->intact()) lock_->renew();
        if (!log_->is_at_path()) log_->write_anew();
        console_.line(text(folder, " was deleted or moved, or its log was: the log so far is there again, and the run ",
                           "continues in it; checkpoints that are gone stay gone"));
    } catch (const Error& error) {
        if (!std::exchange(folder_lost_, true)) {
            console_.line(text(folder, " was deleted or moved, and cannot be made again: ", error.what(),
                               "; the run continues and keeps trying"));
        }
        return;
    }
    folder_lost_ = false;
}

StepBatches Trainer::load_step(std::int64_t step) const {
    const std::int64_t sequences = config_.training.micro_batch_size;
    const std::int64_t first = sequences_before(step) + ranks_.rank() * micro_batches() * sequences;
    StepBatches loaded;
    std::int64_t valid = 0;
    ranks_.together([&] {
        for (std::int64_t i = 0; i < micro_batches(); ++i) {
            loaded.batches.push_back(data_.train->batch(first + i * sequences, sequences));
            valid += loaded.batches.back().valid;
        }
    });
    // The loss is a mean over the valid targets of the whole step, so they are counted before its first micro-batch.
    for (const Ranks::Message& message : ranks_.share({.number = valid, .text = {}})) loaded.valid += message.number;
    return loaded;
}

Trainer::StepUnderWay Trainer::start_step(std::int64_t step, const StepBatches& batches) {
    const Config& config = config_;
    const HostViews& host = session_.host();
    StepUnderWay under_way;
    under_way.step = step;
    passes_.calibrate(batches);
    under_way.started = seconds_now();
    under_way.lr = learning_rate(config.optimizer, config.lr_schedule, config.training.steps, step);
    if (session_.timing()) session_.timing()->begin_step(step);
    if (session_.tensors()) session_.tensors()->begin_step(step);

    F8Counts* counter = session_.timing() ? nullptr : scales_.counter(step);
    passes_.run_micro_batches(
        batches, [&](Pass pass) { counter ? session_.executor().run_observed(pass, *counter) : session_.run(pass); });
    if (counter) under_way.f8_counts = counter->counts();
    if (session_.tensors()) session_.tensors()->end_step();
    under_way.counted = batches.valid;
    passes_.upload_update_scalars(step, under_way.lr, batches.valid, watch_.drop_above(step));
    under_way.f8 = scales_.read();
    session_.run(Pass::update);
    under_way.readback = session_.executor().read_values({host.loss, host.norm, host.skip});
    return under_way;
}

Trainer::StepResult Trainer::result_of(StepUnderWay& under_way) {
    const std::vector<double> values = under_way.readback->wait();
    const double now = seconds_now();
    StepResult result;
    const auto skip = static_cast<std::int32_t>(values[2]);
    result.counted = under_way.counted;
    result.loss = result.counted > 0 ? unsigned_nan(values[0]) : std::numeric_limits<double>::quiet_NaN();
    result.norm = unsigned_nan(values[1]);
    result.skipped = (skip & GradNorm::kNonFinite) != 0;
    result.dropped = (skip & GradNorm::kDropped) != 0;
    if (under_way.f8) result.f8 = scales_.records(under_way.f8->wait(), under_way.f8_counts);
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
    ranks_.together([&] { require_finite(under_way.step, result.f8); });
}

void Trainer::stop_non_finite(std::int64_t step, const StepResult& result) {
    // This update was skipped, and so was the update of any later step. So the weights are still the ones that this
    // step began with.
    NonFiniteFinder finder(session_.executor(), session_.schedules());
    passes_.run_micro_batches(load_step(step), [&](Pass pass) { session_.executor().run_observed(pass, finder); });
    const std::string found = ranks_.first_text(ranks_.share({.number = 0, .text = finder.found().value_or("")}));
    const std::string culprit = found.empty() ? "no op on its own: the gradient norm overflowed" : found;
    ranks_.stop<NonFiniteError>(text("step ", step, ": loss ", result.loss, ", gradient norm ", result.norm,
                                     "; the first result that is not finite: ", culprit,
                                     ". The weights were not updated; try a lower optimizer.learning_rate, more "
                                     "lr_schedule.warmup_steps, or --resume from the last checkpoint"));
}

void Trainer::stop_without_data(std::int64_t step, const Error& error) {
    const std::int64_t last = step - 1;
    if (last == weights_.step()) ranks_.stop<Error>(error.what());
    if (saved_ != last) checkpoint(last);
    checkpoints_.finish();
    ranks_.stop<Error>(text("step ", step, " cannot be read: ", error.what(), " Step ", last,
                            " is complete and saved: mend the data and continue with --resume"));
}

int Trainer::check_step(std::int64_t step) {
    std::int64_t operations = 0, beyond = 0;
    const auto print = [&](const OracleLine& line) {
        console_.line(line.text);
        ++operations;
        if (!line.ok) ++beyond;
    };
    const auto checked = [&](Pass pass) { session_.executor().run_checked(pass, print); };
    const StepBatches batches = load_step(step);
    passes_.calibrate(batches);
    passes_.run_micro_batches(batches, checked);
    const double lr = learning_rate(config_.optimizer, config_.lr_schedule, config_.training.steps, step);
    passes_.upload_update_scalars(step, lr, batches.valid, watch_.drop_above(step));
    checked(Pass::update);
    console_.line(text("oracle at step ", step, ": ", operations, " operations, ", beyond, " beyond their tolerance"));
    return beyond == 0 ? kExitDone : kExitRuntime;
}

void Trainer::validate(std::int64_t step) {
    const ValidationLoss validation = evaluate();
    if (log_) log_->write_validation(step, validation.loss);
    console_.line(text("validation at step ", step, ": ", loss_text(validation)));
    if (validation.tokens > 0 && !std::isfinite(validation.loss)) {
        ranks_.stop<NonFiniteError>(
            text("the validation loss at step ", step, " is ", validation.loss,
                 ". The step is not saved; try a lower optimizer.learning_rate, or --resume from the ",
                 "last checkpoint with one"));
    }
}

void Trainer::checkpoint(std::int64_t step) {
    nlohmann::json state = {{"config", to_json(config_)},
                            {"sequences", sequences_before(step + 1)},
                            {"tokens", tokens_after(step)},
                            {"identity", identity_.json()}};
    if (tokenizer_) state["tokenizer"] = tokenizer_->record();
    state[kSpikeWatch] = watch_.state();
    saved_ = step;
    restore_folder();
    checkpoints_.save(step, state, [this] {
        if (log_) log_->sync();
    });
}

int Trainer::train() {
    const Config& config = config_;
    const std::int64_t done = weights_.step(), steps = config.training.steps;
    if (options_.dump_batches) {
        dump_batches(*options_.dump_batches, *data_.train, sequences_before(done + 1),
                     std::max<std::int64_t>(0, steps - done) * config.training.grad_accumulation_steps,
                     config.training.micro_batch_size, config.training.seq_len);
    }
    if (ranks_.leads()) open_log();
    const std::string ranks = ranks_.count() > 1 ? text(", rank ", ranks_.rank(), " of ", ranks_.count()) : "";
    console_.line(text("training ", count_text(static_cast<double>(session_.layout().parameters)), " parameters on ",
                       session_.executor().device_name(), ranks, ": ", steps - done, " steps of ", tokens_per_step(),
                       " tokens, arena ", bytes_text(static_cast<double>(session_.plan().arena_bytes())),
                       ", output in ", run_directory().string()));
    for (const std::string& note : notes_of_masks(data_.train->ranges(), session_.config().training.seq_len)) {
        console_.line(note);
    }
    if (weights_.resumed() && done >= steps) {
        console_.line(text("nothing to do: the checkpoint is already at step ", done, " of ", steps));
        return kExitDone;
    }

    if (options_.tensor_stats) {
        session_.watch_tensors(*options_.tensor_stats, options_.tensor_stats_every, options_.command);
    }
    watch_interrupts();
    const bool look_at_once = !session_.executor().asynchronous() || looks_at_once_;
    std::optional<StepUnderWay> before;  // the host looks at a step's results when the next one is enqueued
    const auto settle_before = [&] {
        if (before) settle(*before);
        before.reset();
    };
    for (std::int64_t step = done + 1; step <= steps; ++step) {
        if (options_.oracle_step == step) {
            settle_before();
            return check_step(step);
        }
        StepBatches batches;
        try {
            batches = load_step(step);
        } catch (const LostRankError&) {
            throw;
        } catch (const Error& error) {
            settle_before();
            stop_without_data(step, error);
        }
        StepUnderWay now = start_step(step, batches);
        settle_before();
        checkpoints_.look();

        constexpr std::int64_t kStop = 1, kSave = 2;
        std::int64_t requests = 0;  // of any rank, so that all do the same
        const std::int64_t mine = (interrupted() ? kStop : 0) | (save_requested() ? kSave : 0);
        for (const Ranks::Message& message : ranks_.share({.number = mine, .text = {}})) requests |= message.number;
        const bool last = step == steps, stop = (requests & kStop) != 0, asked = (requests & kSave) != 0;
        const auto due = [&](std::int64_t interval) { return interval > 0 && step % interval == 0; };
        const bool validates = due(config.validation.interval) || (last && config.validation.batches > 0);
        const bool evaluates = due(config.evaluation.interval) || last;
        const bool samples = samples_ && (due(config.samples.interval) || last);
        const bool saves = due(config.checkpoint.interval) || (last && config.checkpoint.at_end) || stop || asked;
        if (!look_at_once && !validates && !evaluates && !samples && !saves) {
            before = std::move(now);
            continue;
        }
        settle(now);
        if (validates) validate(step);
        if (evaluates) write_evaluations(step);
        if (samples) write_samples(step);
        if (asked) console_.line(text("SIGUSR1: saving step ", step));
        if (saves) checkpoint(step);
        if (stop && !last) {
            session_.executor().receive();
            checkpoints_.finish();
            write_observations();
            console_.line(text("interrupted: step ", step, " is complete and saved; continue with --resume"));
            return kExitInterrupted;
        }
    }
    if (saved_ != steps) ranks_.together([&] { require_finite_state(session_, steps); });
    session_.executor().receive();
    checkpoints_.finish();
    if (log_) log_->sync();
    write_observations();
    return kExitDone;
}

void Trainer::write_observations() {
    if (options_.timing) session_.write_timing(*options_.timing, options_.command);
    if (!session_.tensors()) return;
    session_.tensors()->finish();
    console_.line(text("statistics of the tensors in ", options_.tensor_stats->string()));
}

}  // namespace coda
