#include "src/train/evaluator.h"

#include "src/core/unsigned_nan.h"
#include "src/io/run_log.h"
#include "src/train/multiple_choice.h"

namespace coda {

Evaluator::Evaluator(Session& session, EvaluationData data, Console& console)
    : session_(session), data_(std::move(data)), console_(console) {}

ValidationLoss Evaluator::validation() {
    const Config& config = session_.config();
    const TrainingConfig& training = config.training;
    double sum = 0;
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < config.validation.batches; ++i) {
        const std::int64_t first = i * training.micro_batch_size;
        if (first >= data_.validation->sequences()) break;
        const TokenBatch batch = data_.validation->batch(first, training.micro_batch_size);
        session_.evaluate(batch);
        sum += download_scalar(session_.executor(), session_.host().val_loss) * static_cast<double>(batch.valid);
        total += batch.valid;
    }
    return {.loss = unsigned_nan(sum / static_cast<double>(total)), .tokens = total};
}

std::vector<EvaluationRecord> Evaluator::choices(std::int64_t step) {
    const Config& config = session_.config();
    const TrainingConfig& training = config.training;
    const auto bos = static_cast<std::int32_t>(config.model.bos_token_id.value_or(-1));
    const auto losses_of = [&](TokenBatch batch) {
        batch.begins = begins_at(bos, batch.tokens);
        session_.evaluate(batch);
        return download_vector(session_.executor(), session_.host().losses);
    };
    std::vector<EvaluationRecord> records;
    for (const EvaluationShard& shard : data_.shards) {
        const MultipleChoiceResult result = evaluate_multiple_choice(
            shard, config.evaluation.limit, training.micro_batch_size, training.seq_len, losses_of);
        if (result.truncated > 0) {
            console_.line(text("note: ", shard.name(), ": ", result.truncated, " of ", result.rows,
                               " rows are longer than training.seq_len and lost the beginning of their context"));
        }
        records.push_back({.step = step,
                           .name = shard.name(),
                           .acc = result.acc,
                           .acc_norm = result.acc_norm,
                           .examples = result.examples});
    }
    return records;
}

std::string loss_text(const ValidationLoss& validation) {
    if (validation.tokens == 0) return "loss null, as the validation data has no counted target";
    return text("loss ", json_number(validation.loss), " over ", validation.tokens, " tokens");
}

std::string evaluation_line(const EvaluationRecord& record) {
    return text(record.name, ": acc ", json_number(record.acc), ", acc_norm ", json_number(record.acc_norm), " over ",
                record.examples, " examples");
}

}  // namespace coda
