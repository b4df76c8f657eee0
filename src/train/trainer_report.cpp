// What a training run says of its steps: on the console and in its log.
#include "src/train/trainer.h"

namespace coda {

namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

}  // namespace

void Trainer::write_evaluations(std::int64_t step) {
    for (const EvaluationRecord& record : evaluator_.choices(step)) {
        if (log_) log_->write_evaluation(record);
        console_.line(text("evaluation at step ", step, ": ", evaluation_line(record)));
    }
}

void Trainer::write_samples(std::int64_t step) {
    session_.executor().receive();  // passes of generation do not wait for weights on their way
    samples_->make(step, [this](const SampleRecord& record) {
        if (log_) log_->write_sample(record);
        console_.line(sample_line(record));
    });
}

void Trainer::report(std::int64_t step, const StepResult& result) {
    restore_folder();
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
    const SpikeScores scores = watch_.observe(step, result.loss, result.norm);
    const std::string skipped = result.counted == 0 ? "no counted target" : result.dropped ? "spike" : "";
    if (result.counted == 0) {
        console_.line(text("step ", step, " has no counted target: the update was dropped"));
    } else if (scores.spike() || result.dropped) {
        console_.line(spike_line(step, result.loss, result.norm, scores, result.dropped));
    }
    if (!log_) return;
    log_->write(
        {.step = step,
         .loss = result.loss,
         .grad_norm = result.norm,
         .lr = result.lr,
         .tokens = tokens_after(step),
         .ms = result.ms,
         .tokens_per_s = tokens_per_s,
         .mfu = step_flops_ / (result.ms / 1000) / session_.executor().peaks().flops_per_s,
         .memory_gib = static_cast<double>(session_.plan().arena_bytes() + session_.executor().overhead_bytes()) / kGiB,
         .loss_z = scores.loss,
         .norm_z = scores.norm,
         .skipped = skipped,
         .f8 = result.f8});
}

}  // namespace coda
