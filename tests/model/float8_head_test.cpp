// Training with logits of FP8 operands (precision.head_forward) on the CPU: losses and gradients beside the textbook
// model in double, and what stays in bf16.
//
// A logit of FP8 operands is off by 4.05% of the RMS of its row's logits, at random (float8_test.cpp). With the errors
// δ of a row's logits its loss is off by Σ p δ - δ_target, and its gradient p - [target] by p (δ - Σ p δ).
#include <algorithm>

#include "kernels/core/float8.h"
#include "tests/catch.h"
#include "tests/model/float8_run.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr double kProduct = 0.0405;

/// Weights whose logits have a deviation of about 2, as a trained model's.
textbook::Weights weights_of(const ModelConfig& model, double gain = 5) {
    textbook::Weights weights = small_weights();
    for (double& value : weights.at("lm_head.weight")) value *= gain;
    if (model.tie_word_embeddings) weights.erase("lm_head.weight");
    return weights;
}

struct Row {
    double loss, square;       // the mean square of its logits
    double target, collision;  // p of the target, and Σ p²
};

std::vector<Row> rows_of(const ModelConfig& model, const textbook::Weights& weights, const textbook::Batch& batch) {
    const std::vector<double> logits = textbook::logits(model, weights, batch);
    const auto vocab = static_cast<std::size_t>(model.vocab_size);
    std::vector<Row> rows;
    for (std::size_t r = 0; r < batch.targets.size(); ++r) {
        const double* l = &logits[r * vocab];
        double sum = 0, squares = 0, collision = 0;
        for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(l[v]), squares += l[v] * l[v];
        for (std::size_t v = 0; v < vocab; ++v) collision += std::pow(std::exp(l[v]) / sum, 2);
        const double p = batch.targets[r] < 0 ? 0 : std::exp(l[batch.targets[r]]) / sum;
        rows.push_back({batch.targets[r] < 0 ? 0 : -std::log(p), squares / static_cast<double>(vocab), p, collision});
    }
    return rows;
}

double square_of(const std::vector<double>& values) {
    double square = 0;
    for (const double value : values) square += value * value;
    return square;
}

/// The error of a gradient relative to the true one.
double error_of(const textbook::Weights& found, const textbook::Weights& truth, const std::string& name) {
    double difference = 0;
    for (std::size_t i = 0; i < truth.at(name).size(); ++i)
        difference += std::pow(found.at(name)[i] - truth.at(name)[i], 2);
    return std::sqrt(difference / square_of(truth.at(name)));
}

}  // namespace

TEST_CASE("a row's loss of FP8 logits is as far from the textbook as their rounding") {
    const textbook::Weights weights = weights_of(small_model());
    F8Run run(head_alone());
    run.begin(batches_of(1), weights);
    double found = 0, expected = 0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        const textbook::Batch batch = batches_of(seed).front();
        run.step({batch});
        const std::vector<double> losses = run.elements(run.schedules.host.losses);
        const std::vector<Row> rows = rows_of(small_model(), weights, batch);
        for (std::size_t r = 0; r < rows.size(); ++r) {
            if (batch.targets[r] < 0) continue;
            found += std::pow(losses[r] - rows[r].loss, 2);
            expected += kProduct * kProduct * rows[r].square * (1 - 2 * rows[r].target + rows[r].collision);
        }
    }
    const double ratio = std::sqrt(found / expected);
    INFO("error " << ratio << " of what rounding makes");
    CHECK(ratio > 0.8);  // with a target's logit of bf16 operands it is 0.56
    CHECK(ratio < 1.2);
}

TEST_CASE("gradients of FP8 logits are as far from the textbook as their rounding") {
    const textbook::Weights weights = weights_of(small_model());
    const std::vector<textbook::Batch> batches = batches_of(1, 4);
    const textbook::Result truth = textbook::loss_and_gradients(small_model(), weights, batches);
    // dW = Σ over rows of (p - [target]) x̂, and rows of x̂ have a square of d. Rows' errors are independent.
    double errors = 0, valid = 0;
    for (const textbook::Batch& batch : batches) {
        const std::vector<Row> rows = rows_of(small_model(), weights, batch);
        for (std::size_t r = 0; r < rows.size(); ++r) {
            if (batch.targets[r] < 0) continue;
            const Row& row = rows[r];
            errors += kProduct * kProduct * row.square * row.collision * (1 + row.collision);
            valid += 1;
        }
    }
    const double expected = std::sqrt(errors * static_cast<double>(small_model().hidden_size) / (valid * valid) /
                                      square_of(truth.gradients.at("lm_head.weight")));
    F8Run run(head_alone());
    run.begin(batches, weights);
    const double loss = run.step(batches);
    CHECK(std::abs(loss / truth.loss - 1) < 0.01);
    const textbook::Weights found = run.gradients();
    const double head = error_of(found, truth.gradients, "lm_head.weight");
    INFO("error of the head's gradient " << head << ", expected " << expected);
    CHECK(head > 0.7 * expected);
    CHECK(head < 1.3 * expected);
    // dx = Wᵀ (p - [target]) has the same error, and so has what follows from it.
    for (const char* name : {"model.norm.weight", "model.embed_tokens.weight", "model.layers.1.mlp.down_proj.weight"}) {
        INFO(name);
        CHECK(error_of(found, truth.gradients, name) < 2 * expected);
    }
}

TEST_CASE("with FP8 logits the head's backward pass, validation and generation multiply bf16") {
    const Schedules schedules = F8Run(with_head()).schedules;
    std::vector<std::string> reads;
    const auto note = [&](const Schedule& schedule) {
        for (const Step& step : schedule) {
            if (step.layer >= 0) continue;
            for_each_operand(step.op, [&](const std::string& field, const View& view, Access access) {
                if (is_f8(view.dtype)) reads.push_back(text(step.name, access == Access::in ? " < " : " > ", field));
            });
        }
    };
    note(schedules.first);
    CHECK(reads == std::vector<std::string>{"head_input_f8 > rows", "target_logit < a", "target_logit < table",
                                            "logits < a", "logits < w"});
    reads.clear();
    note(schedules.scales);
    CHECK(reads == std::vector<std::string>{"head_f8 > rows"});
    reads.clear();
    for (const Pass pass : {Pass::evaluate, Pass::sample, Pass::decode}) note(schedules[pass]);
    CHECK(reads.empty());

    const auto validation = [](const PrecisionConfig& precision) {
        F8Run run(precision);
        run.begin(batches_of(1));
        return run.evaluate(batches_of(5).front());
    };
    CHECK(validation(head_alone()) == validation(PrecisionConfig{}));
}

TEST_CASE("FP8 logits alone have one tensor with a scale, which needs no calibration") {
    F8Run run(head_alone());
    CHECK(run.schedules.float8_tensors == std::vector<Float8Name>{{-1, "head.weight"}});
    run.begin(batches_of(1));
    CHECK(run.elements(run.schedules.host.float8.history)[0] > 0);  // of the weights, which no pass had to show
    const std::vector<Float8Record> records = run.scales->records(run.scales->read()->wait(), {});
    REQUIRE(records.size() == 1);
    CHECK(records[0].layer == -1);
    CHECK((records[0].range > 0.5 && records[0].range <= 1));
    const double first = run.step(batches_of(1));
    CHECK(run.step(batches_of(1)) == first);
}

TEST_CASE("an update leaves an FP8 copy of the head's new weights, tied or not") {
    ModelConfig tied = small_model();
    tied.tie_word_embeddings = true;
    for (const ModelConfig& model : {small_model(), tied}) {
        INFO("tied " << model.tie_word_embeddings);
        F8Run run(with_head(), Recompute::none, kAllPasses, model);
        run.begin(batches_of(1), weights_of(model, 1));
        const auto copy = std::find_if(run.schedules.update.begin(), run.schedules.update.end(),
                                       [](const Step& step) { return std::string(step.name) == "head_f8"; });
        REQUIRE(copy != run.schedules.update.end());
        const auto& op = std::get<QuantiseF8>(copy->op);
        for (std::int64_t t = 1; t <= 3; ++t) {
            run.train(t, batches_of(static_cast<std::uint64_t>(t)));
            // A weight moves by 0.01 in a step, a sixth of its deviation.
            const std::vector<double> weights = run.elements(op.x), scale = run.elements(op.scale);
            const std::vector<std::uint8_t> codes = run.codes(op.rows);
            double difference = 0;
            for (std::size_t i = 0; i < codes.size(); ++i) {
                F8E4M3 code;
                code.bits = codes[i];
                difference += std::pow(static_cast<double>(static_cast<float>(code)) / scale[0] - weights[i], 2);
            }
            CHECK(std::sqrt(difference / square_of(weights)) < 0.03);
        }
    }
}

TEST_CASE("the rows' losses do not depend on how many chunks make their FP8 logits") {
    const auto losses_with = [](std::int64_t chunks) {
        F8Run run(with_head(), Recompute::none, kAllPasses, small_model(), chunks);
        CHECK_NOTHROW(plan_and_check(run.schedules));
        run.begin(batches_of(1), weights_of(small_model()));
        run.step(batches_of(1));
        return run.elements(run.schedules.host.losses);
    };
    const std::vector<double> whole = losses_with(1);
    CHECK(losses_with(3) == whole);  // 11, 11 and 10 rows
    CHECK(std::count_if(whole.begin(), whole.end(), [](double loss) { return loss > 0; }) > 16);
}

TEST_CASE("rows whose logits are in the hundreds have the loss of bf16 operands") {
    const textbook::Weights weights = weights_of(small_model(), 1000);
    const auto losses_with = [&](const PrecisionConfig& precision) {
        F8Run run(precision);
        run.begin(batches_of(1), weights);
        run.step(batches_of(1));
        return run.elements(run.schedules.host.losses);
    };
    const std::vector<double> wide = losses_with(PrecisionConfig{}), found = losses_with(head_alone());
    std::int64_t large = 0, equal = 0;
    for (std::size_t r = 0; r < wide.size(); ++r)
        if (wide[r] > 200) ++large, equal += found[r] == wide[r];
    CHECK(large > 16);
    CHECK(equal == large);
}
