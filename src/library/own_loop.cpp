#include "src/library/own_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "src/core/errors.h"
#include "src/train/program/asked.h"
#include "src/train/rank_options.h"

namespace coda {

namespace {

/// Throws UsageError for what only coda_train does with a run.
void require_only_a_run(const CommandLine& command) {
    const std::pair<const char*, bool> others[] = {
        {"--timing", command.timing.has_value()},
        {"--tensor-stats", command.tensor_stats.has_value()},
        {"--dump-batches", command.dump_batches.has_value()},
        {"--oracle", command.oracle_step.has_value()},
        {"samples.interval", command.config.samples.interval > 0},
    };
    if (!command.runs())
        throw UsageError("coda_open opens a run: its flags are the configuration's, --init-from and --resume");
    for (const auto& [name, given] : others) {
        if (given) throw UsageError(text(name, " is for coda_train, and coda_open only opens a run"));
    }
}

const Config& checked(const CommandLine& command) {
    require_only_a_run(command);
    return command.config;
}

}  // namespace

OwnLoop::OwnLoop(const CommandLine& command, Team* team)
    : config_(checked(command)),
      options_([&] {
          RunOptions options = run_options(command);
          options.team = team;
          options.out = stderr;  // standard output is the caller's
          return options_of_rank(config_, std::move(options));
      }()),
      ranks_(team),
      console_(options_.out),
      session_(config_, passes_of(Mode::train), false, console_, {}, team),
      weights_(config_, options_.weights(), true, std::nullopt, console_),
      scales_(session_.executor(), session_.schedules(), config_.precision),
      passes_(session_, scales_),
      step_(weights_.step()) {
    weights_.load(session_);
    scales_.load(weights_.checkpoint());
    weights_.release();
}

std::int64_t OwnLoop::micro_batches() const { return config_.training.grad_accumulation_steps / ranks_.count(); }

TokenBatch OwnLoop::batch_of(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) const {
    const std::int64_t vocab = config_.model.vocab_size;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        require(tokens[i] >= 0 && tokens[i] < vocab, "token ", i, " is ", tokens[i],
                ", and the model has rows for ids from 0 to ", vocab - 1);
        require(targets[i] < vocab, "target ", i, " is ", targets[i], ", and the model has rows for ids from 0 to ",
                vocab - 1);
    }
    TokenBatch batch{.tokens = {tokens.begin(), tokens.end()}, .targets = {targets.begin(), targets.end()}};
    batch.begins = begins_at(static_cast<std::int32_t>(config_.model.bos_token_id.value_or(-1)), tokens);
    batch.valid = std::count_if(targets.begin(), targets.end(), [](std::int32_t target) { return target >= 0; });
    return batch;
}

void OwnLoop::gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    StepBatches step;
    std::int64_t valid = 0;
    ranks_.together([&] {
        const std::size_t batch = tokens.size() / static_cast<std::size_t>(micro_batches());
        for (std::size_t first = 0; first < tokens.size(); first += batch) {
            step.batches.push_back(batch_of(tokens.subspan(first, batch), targets.subspan(first, batch)));
            valid += step.batches.back().valid;
        }
    });
    for (const Ranks::Message& message : ranks_.share({.number = valid, .text = {}})) step.valid += message.number;
    passes_.calibrate(step);
    passes_.run_micro_batches(step, [&](Pass pass) { session_.run(pass); });
    counted_ = step.valid;
    session_.executor().finish();
}

void OwnLoop::update(double learning_rate) {
    passes_.upload_update_scalars(++step_, learning_rate, counted_, std::numeric_limits<double>::infinity());
    session_.run(Pass::update);
    session_.executor().receive();
}

OwnLoop::Result OwnLoop::result() {
    const HostViews& host = session_.host();
    const std::vector<double> values = session_.executor().read_values({host.loss, host.norm, host.skip})->wait();
    if ((static_cast<std::int32_t>(values[2]) & GradNorm::kNonFinite) != 0) {
        ranks_.stop<NonFiniteError>(text("step ", step_, ": loss ", std::abs(values[0]), ", gradient norm ",
                                         std::abs(values[1]), ": the weights are those of step ", step_ - 1));
    }
    return {.loss = values[0], .norm = values[1]};
}

double OwnLoop::validate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    TokenBatch batch;
    ranks_.together([&] { batch = batch_of(tokens, targets); });
    session_.evaluate(batch);
    return download_scalar(session_.executor(), session_.host().val_loss);
}

}  // namespace coda
