// What ops of a model with LayerNorm read that follows from its weights only: it is made when weights are loaded and by
// every update, and no other pass makes it.
#include "tests/catch.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

ModelConfig layernorm_model() {
    ModelConfig model = tiny_model();
    model.attention_bias = model.attention_out_bias = model.mlp_bias = true;
    model.mlp = MlpKind::gelu_tanh;
    model.norm = NormKind::layernorm;
    return model;
}

textbook::Batch batch_of(const ModelConfig& model, std::uint64_t seed) { return random_batch(model, 2, 6, seed); }

}  // namespace

TEST_CASE("validations after an update, a dropped one and another load have the bits of the weights at that time") {
    const ModelConfig model = layernorm_model();
    for (const Precision& precision : {kFloat32, kMixedBf16}) {
        ModelRun run(model, {}, precision), fresh(model, {}, precision);
        run.start();
        fresh.start();
        run.set_weights(textbook::random_weights(model, 7));
        std::vector<double> losses;
        const auto same_as_loaded = [&] {
            losses.push_back(run.evaluate(batch_of(model, 1)));
            fresh.set_weights(run.get(run.schedules.host.master));
            CHECK(losses.back() == fresh.evaluate(batch_of(model, 1)));
        };
        same_as_loaded();
        for (int t = 1; t <= 2; ++t) {
            run.step({batch_of(model, static_cast<std::uint64_t>(10 * t))});
            run.update(t, 1e-2, 0.9, 0.95);
            same_as_loaded();
        }
        CHECK(losses[0] != losses[1]);
        CHECK(losses[1] != losses[2]);
        upload_scalar(*run.executor, run.schedules.host.drop_above, -1);
        run.executor->run(Pass::update);
        same_as_loaded();
        CHECK(losses[3] == losses[2]);
        run.set_weights(textbook::random_weights(model, 8));
        same_as_loaded();
        CHECK(losses[4] != losses[3]);
    }
}

TEST_CASE("only an update and a load derive from the weights") {
    const ModelConfig model = layernorm_model();
    ScheduleOptions options;
    options.seq_len = 6;
    options.micro_batch_size = 2;
    options.generation = {.batch = 2, .context = 6};
    const Schedules schedules =
        build_schedules(model, parameter_layout(model), options, passes_of(Mode::train) | passes_of(Mode::generate));
    const auto steps_of = [&](Pass pass) {
        std::vector<std::string> steps;
        for (const Step& step : schedules[pass]) {
            const bool centres = std::holds_alternative<CentreColumns>(step.op) && step.phase != Phase::backward;
            if (centres || std::holds_alternative<FoldBeta>(step.op)) steps.push_back(step.name);
        }
        return steps;
    };
    CHECK(steps_of(Pass::derive).size() == 4 * parameter_layout(model).layers.size());
    CHECK(steps_of(Pass::update) == steps_of(Pass::derive));
    for (const Pass pass : schedules.passes()) {
        INFO(name_of(schedules, pass));
        if (pass != Pass::update && pass != Pass::derive) CHECK(steps_of(pass).empty());
    }
    CHECK_NOTHROW(plan_and_check(schedules));
}

TEST_CASE("a model without LayerNorm derives nothing") {
    const ModelConfig model = tiny_model();
    ScheduleOptions options;
    options.seq_len = 6;
    options.micro_batch_size = 2;
    CHECK(!build_schedules(model, parameter_layout(model), options).has(Pass::derive));
}
