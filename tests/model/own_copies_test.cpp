// FP8 training without a flat working copy against the same with one, which a plan with samples has.
#include <array>

#include "tests/catch.h"
#include "tests/model/f8_run.h"

using namespace coda;
using namespace coda::test;

namespace {

ModelConfig small_tied_model() {
    ModelConfig model = small_model();
    model.tie_word_embeddings = true;
    return model;
}

textbook::Weights weights_of(const ModelConfig& model) {
    textbook::Weights weights = small_weights();
    if (model.tie_word_embeddings) weights.erase("lm_head.weight");
    return weights;
}

struct Outcome {
    std::vector<double> losses, master, m, validations;
    bool operator==(const Outcome&) const = default;
};

/// Three updates, the second of them dropped, and a validation before the first and after each.
Outcome outcome_of(F8Run& run, const PrecisionConfig& precision) {
    run.start();
    run.set_weights(weights_of(run.model));
    run.scales.emplace(*run.executor, run.schedules, precision);
    run.scales->load(nullptr);
    Outcome outcome;
    const auto validate = [&] { outcome.validations.push_back(run.evaluate(batches_of(5).front())); };
    outcome.losses.push_back(run.step(batches_of(5)));
    validate();
    for (std::int64_t t = 1; t <= 3; ++t) {
        outcome.losses.push_back(run.step(batches_of(static_cast<std::uint64_t>(10 * t), 2)));
        if (t == 2) {
            upload_scalar(*run.executor, run.schedules.host.drop_above, -1);
            run.executor->run(Pass::update);
        } else {
            run.update(t, 1e-2, 0.9, 0.95);
        }
        validate();
    }
    outcome.master = run.elements(run.schedules.host.master);
    outcome.m = run.elements(run.schedules.host.m);
    return outcome;
}

}  // namespace

TEST_CASE("FP8 training without a flat working copy has the bits of training with one") {
    for (const F8Case& c : kF8Cases)
        for (const Recompute recompute : {Recompute::none, Recompute::swiglu})
            for (const ModelConfig& model : {small_model(), small_tied_model()}) {
                INFO(c.name << ", recompute " << static_cast<int>(recompute) << ", tied " << model.tie_word_embeddings);
                F8Run with(c.precision, recompute, kWithGeneration, model);
                F8Run without(c.precision, recompute, kAllPasses, model);
                CHECK(with.schedules.uses(with.schedules.host.working));
                CHECK_FALSE(without.schedules.uses(without.schedules.host.working));
                CHECK_NOTHROW(plan_and_check(without.schedules));
                const Outcome expected = outcome_of(with, c.precision);
                CHECK((outcome_of(without, c.precision) == expected));
                CHECK(expected.validations[1] != expected.validations[0]);
                CHECK(expected.validations[2] == expected.validations[1]);
            }
}

TEST_CASE("a training plan has the bf16 copies of the matrices that training reads in bf16, and no others") {
    const auto bytes_kept = [](const PrecisionConfig& precision) {
        const F8Run run(precision, Recompute::none);
        std::int64_t bytes = 0;
        for (const Buffer& buffer : run.schedules.buffers.all())
            if (buffer.lifetime == Lifetime::persistent && buffer.name.ends_with("working weights") &&
                buffer.name != "working weights")
                bytes += buffer.bytes;
        return bytes;
    };
    const ModelConfig model = small_model();
    const std::int64_t d = model.hidden_size, table = padded_vocab(model) * d;
    CHECK(bytes_kept(PrecisionConfig::fp8()) == 2 * 2 * table);
    const std::int64_t layer = (2 + 2) * 16 * d + 32 * d + 3 * model.intermediate_size * d;  // qkv, attn_out, MLP
    CHECK(bytes_kept(kFirstBf16) == 2 * (2 * table + layer));

    const Schedules bf16 = F8Run(PrecisionConfig{}, Recompute::none).schedules;
    CHECK(bf16.uses(bf16.host.working));
}
