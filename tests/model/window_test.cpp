// Sliding windows: the schedule, run by cpu::run, against the textbook model, which has its own code of a window.
// Tolerance: see textbook_test.cpp.
#include "tests/catch.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

struct Case {
    const char* name;
    std::int64_t window;
    Sizes sizes;
    bool bias = false, restart = false;
    std::size_t micro_batches = 1;
};

ModelConfig model_of(const Case& c) {
    ModelConfig model = tiny_model();
    model.attention_bias = c.bias;
    model.sliding_window = c.window;
    return model;
}

struct Errors {
    double loss, gradient;
};

/// Of a model with the window `taken` against the textbook's with c.window.
Errors compare(const Case& c, std::int64_t taken) {
    ModelConfig model = model_of(c);
    const textbook::Weights weights = textbook::random_weights(model, 7);
    std::vector<textbook::Batch> batches;
    for (std::size_t i = 0; i < c.micro_batches; ++i) {
        batches.push_back(random_batch(model, c.sizes.batch, c.sizes.seq_len, 100 + i, c.sizes.document_mask));
        batches.back().restart_positions = c.restart;
    }
    const textbook::Result truth = textbook::loss_and_gradients(model, weights, batches);
    model.sliding_window = taken;
    ModelRun run(model, c.sizes, kFloat64);
    plan_and_check(run.schedules);
    run.start();
    run.set_weights(weights);
    const double loss = run.step(batches);
    return {std::abs(loss - truth.loss) / truth.loss, worst_error(run.gradients(), truth.gradients)};
}

}  // namespace

TEST_CASE("in a window the schedule in double agrees with the textbook model on the loss and every gradient") {
    const Case c =
        GENERATE(Case{.name = "only itself", .window = 1, .sizes = {.seq_len = 7}},
                 Case{.name = "3 keys, chunks", .window = 3, .sizes = {.seq_len = 11, .chunks = 2}},
                 Case{.name = "a key less than the sequence", .window = 8, .sizes = {.seq_len = 9}},
                 Case{.name = "as long as the sequence", .window = 9, .sizes = {.seq_len = 9}},
                 Case{.name = "biases, recompute", .window = 4, .sizes = {.recompute = Recompute::mlp}, .bias = true},
                 Case{.name = "documents", .window = 5, .sizes = {.seq_len = 17, .document_mask = true}},
                 Case{.name = "documents, restarted positions, accumulation",
                      .window = 4,
                      .sizes = {.seq_len = 13, .document_mask = true},
                      .restart = true,
                      .micro_batches = 2});
    INFO(c.name);
    const Errors errors = compare(c, c.window);
    CHECK(errors.loss <= 1e-12);
    CHECK(errors.gradient <= 1e-12);
}

TEST_CASE("a window that is off by one shows in the loss and the gradients") {
    for (const bool documents : {false, true}) {
        const Case c{.name = "", .window = 4, .sizes = {.seq_len = 13, .document_mask = documents}};
        for (const std::int64_t taken : {3, 5, 0}) {
            INFO("documents " << documents << ", window " << taken);
            const Errors errors = compare(c, taken);
            CHECK(errors.loss > 1e-4);
            CHECK(errors.gradient > 1e-2);
        }
    }
}

TEST_CASE("a window that is no shorter than a sequence leaves the lists of a model without") {
    ModelConfig model = tiny_model();
    const ModelRun without(model, {.seq_len = 9}, kFloat32);
    model.sliding_window = 9;
    const ModelRun fits(model, {.seq_len = 9}, kFloat32);
    model.sliding_window = 8;
    const ModelRun cut(model, {.seq_len = 9}, kFloat32);
    CHECK_FALSE(without.schedules.host.doc_start);
    CHECK_FALSE(fits.schedules.host.doc_start);
    CHECK(cut.schedules.host.doc_start);
    for (const Step& step : cut.schedules.first)
        if (const auto* op = std::get_if<Attention>(&step.op)) CHECK(op->window == 8);
    for (const Step& step : fits.schedules.first)
        if (const auto* op = std::get_if<Attention>(&step.op)) CHECK(op->window == 0);
}
