// The schedule, run by cpu::run, against the textbook model: the loss and the gradient of every parameter.
//
// Tolerance in double: every element is a sum of at most a few thousand terms, rounding grows at worst with their
// number times 2^-53 and is amplified by softmax and norms; 1e-12 leaves two digits, and a wrong formula shows at 1e-2
// and more (planted_test.cpp).
#include "tests/catch.h"
#include "tests/model/textbook_case.h"
#include "tests/oracle/adamw.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr double kTolerance = 1e-12;

}  // namespace

TEST_CASE("the schedule in double agrees with the textbook model on the loss and every gradient") {
    const TextbookCase c = GENERATE(
        TextbookCase{.name = "untied", .sizes = {}},                                         //
        TextbookCase{.name = "tied", .tied = true, .sizes = {}},                             //
        TextbookCase{.name = "head in chunks of 5", .sizes = {.chunks = 3}},                 //
        TextbookCase{.name = "tied, head in chunks", .tied = true, .sizes = {.chunks = 5}},  //
        TextbookCase{.name = "accumulation", .sizes = {.batch = 1}, .micro_batches = 2},
        TextbookCase{
            .name = "tied, chunks, accumulation", .tied = true, .sizes = {.batch = 1, .chunks = 2}, .micro_batches = 3},
        TextbookCase{.name = "rope scaling", .scaled = true, .sizes = {.seq_len = 11}},
        TextbookCase{.name = "documents", .documents = true, .sizes = {.seq_len = 9, .document_mask = true}},
        TextbookCase{.name = "documents, restarted positions",
                     .documents = true,
                     .restart = true,
                     .sizes = {.seq_len = 9, .document_mask = true}},
        TextbookCase{.name = "SwiGLU recomputed", .sizes = {.recompute = Recompute::swiglu}},
        TextbookCase{.name = "recompute", .sizes = {.recompute = Recompute::mlp}},
        TextbookCase{
            .name = "biases of q, k and v, accumulation", .bias = true, .sizes = {.batch = 1}, .micro_batches = 2},
        TextbookCase{
            .name = "norms of q and k, accumulation", .norms = true, .sizes = {.batch = 1}, .micro_batches = 2},
        TextbookCase{
            .name = "norms of q and k, documents, restarted positions",
            .tied = true,
            .scaled = true,
            .documents = true,
            .restart = true,
            .norms = true,
            .sizes = {.batch = 2, .seq_len = 13, .chunks = 4, .recompute = Recompute::mlp, .document_mask = true},
            .micro_batches = 2},
        TextbookCase{.name = "LLaMA with all of attention's biases, head in chunks of 5",
                     .bias = true,
                     .out_bias = true,
                     .sizes = {.chunks = 3}},
        TextbookCase{
            .name = "GELU without biases", .mlp = MlpKind::gelu_tanh, .sizes = {.recompute = Recompute::swiglu}},
        TextbookCase{.name = "GELU, every bias, chunks, accumulation",
                     .tied = true,
                     .bias = true,
                     .out_bias = true,
                     .mlp_bias = true,
                     .mlp = MlpKind::gelu_tanh,
                     .sizes = {.batch = 1, .chunks = 4},
                     .micro_batches = 3},
        TextbookCase{.name = "exact GELU, every bias, recompute",
                     .bias = true,
                     .out_bias = true,
                     .mlp_bias = true,
                     .mlp = MlpKind::gelu_exact,
                     .sizes = {.recompute = Recompute::mlp}},
        TextbookCase{.name = "learned positions", .learned = true, .sizes = {}},
        TextbookCase{.name = "yarn", .yarn = true, .sizes = {.seq_len = 11}},
        TextbookCase{.name = "yarn, biases of q, k and v, documents, restarted, accumulation",
                     .documents = true,
                     .restart = true,
                     .bias = true,
                     .yarn = true,
                     .sizes = {.batch = 1, .seq_len = 11, .document_mask = true},
                     .micro_batches = 2},
        TextbookCase{.name = "yarn, norms of q and k, recompute",
                     .norms = true,
                     .yarn = true,
                     .sizes = {.seq_len = 11, .recompute = Recompute::mlp}},
        TextbookCase{.name = "learned positions, tied, documents, restarted, accumulation, as gpt2's layers",
                     .tied = true,
                     .documents = true,
                     .restart = true,
                     .bias = true,
                     .out_bias = true,
                     .mlp_bias = true,
                     .mlp = MlpKind::gelu_tanh,
                     .learned = true,
                     .sizes = {.batch = 1, .seq_len = 9, .chunks = 2, .document_mask = true},
                     .micro_batches = 3},
        TextbookCase{.name = "LayerNorm without biases of matrices, RoPE",
                     .mlp = MlpKind::gelu_exact,
                     .layernorm = true,
                     .sizes = {}},
        TextbookCase{.name = "gpt2, documents, chunks, accumulation",
                     .tied = true,
                     .documents = true,
                     .restart = true,
                     .bias = true,
                     .out_bias = true,
                     .mlp_bias = true,
                     .mlp = MlpKind::gelu_tanh,
                     .learned = true,
                     .layernorm = true,
                     .sizes = {.batch = 1, .seq_len = 9, .chunks = 2, .document_mask = true},
                     .micro_batches = 3},
        TextbookCase{.name = "LayerNorm, untied, every bias, recompute",
                     .bias = true,
                     .out_bias = true,
                     .mlp_bias = true,
                     .mlp = MlpKind::gelu_tanh,
                     .layernorm = true,
                     .sizes = {.recompute = Recompute::mlp}},
        TextbookCase{.name = "exact GELU with biases of the MLP only",
                     .mlp_bias = true,
                     .mlp = MlpKind::gelu_exact,
                     .sizes = {.seq_len = 5}},
        TextbookCase{
            .name = "everything",
            .tied = true,
            .scaled = true,
            .documents = true,
            .restart = true,
            .bias = true,
            .sizes = {.batch = 2, .seq_len = 13, .chunks = 4, .recompute = Recompute::mlp, .document_mask = true},
            .micro_batches = 2});
    INFO(c.name);
    const Errors errors = compare(c, kFloat64);
    CHECK(errors.loss <= kTolerance);
    CHECK(errors.gradient <= kTolerance);
}

TEST_CASE("ragged partial tiles: a second tile in every direction, and a small one") {
    ModelConfig model = tiny_model();
    model.hidden_size = 136;
    REQUIRE(model.hidden_size > LinearResidualRms::tile_columns(model.hidden_size, false));
    model.intermediate_size = LinearSwigluBackward::kTileColumns + 4;
    model.num_hidden_layers = 1;
    model.vocab_size = LinearCrossEntropy::kTileColumns + 14;
    model.attention_bias = model.attention_out_bias = GENERATE(false, true);
    model.qk_norm = !model.attention_bias;
    model.mlp = GENERATE(MlpKind::swiglu, MlpKind::gelu_tanh);
    model.mlp_bias = model.mlp != MlpKind::swiglu;
    if (model.mlp_bias && !model.qk_norm) model.norm = NormKind::layernorm;
    const std::int64_t rows = LinearRmsBackward::kTileRows + 6;
    const Sizes sizes{.batch = 2, .seq_len = rows / 2, .chunks = 1};
    const textbook::Weights weights = textbook::random_weights(model, 3);
    const std::vector<textbook::Batch> batches{random_batch(model, sizes.batch, sizes.seq_len, 5)};
    const textbook::Result truth = textbook::loss_and_gradients(model, weights, batches);
    ModelRun run(model, sizes, kFloat64);
    run.start();
    run.set_weights(weights);
    CHECK(run.step(batches) == Approx(truth.loss).epsilon(kTolerance));
    CHECK(worst_error(run.gradients(), truth.gradients) <= kTolerance);
}

TEST_CASE("the evaluation schedule gives the textbook loss") {
    const bool bias = GENERATE(false, true);
    const TextbookCase c{.name = "evaluation", .bias = bias, .norms = !bias, .sizes = {.chunks = 2}};
    const ModelConfig model = model_of(c);
    const textbook::Weights weights = textbook::random_weights(model, 7);
    const textbook::Batch batch = random_batch(model, 2, 6, 1);
    ModelRun run(model, c.sizes, kFloat64);
    run.start();
    run.set_weights(weights);
    CHECK(run.evaluate(batch) == Approx(textbook::loss(model, weights, {batch})).epsilon(kTolerance));
}

// A logit of 10^3 is off by 10^3 times what an activation is off by, and so, relatively, is its exponential: three
// digits fewer than in the tests before.
TEST_CASE("logits in the hundreds, and a common offset of a thousand, have the textbook's loss and gradients") {
    ModelConfig model = tiny_model();
    model.tie_word_embeddings = GENERATE(false, true);
    const bool offset = GENERATE(false, true);
    INFO((model.tie_word_embeddings ? "tied" : "untied") << (offset ? ", offset" : ", spread"));
    textbook::Weights weights = textbook::random_weights(model, 7);
    std::vector<double>& head = weights.at(model.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
    if (offset)
        for (std::size_t i = 0; i < head.size(); i += static_cast<std::size_t>(model.hidden_size)) head[i] += 1000;
    else
        for (double& gamma : weights.at("model.norm.weight")) gamma *= 200;
    const std::vector<textbook::Batch> batches{random_batch(model, 2, 6, 100), random_batch(model, 2, 6, 101)};
    const textbook::Result truth = textbook::loss_and_gradients(model, weights, batches);
    CHECK((offset || truth.loss > 200));
    for (const auto& [precision, tolerance] : {std::pair{kFloat64, 1e3 * kTolerance}, std::pair{kFloat32, 2e-2}}) {
        ModelRun run(model, {.chunks = 2}, precision);
        run.start();
        run.set_weights(weights);
        CHECK(std::abs(run.step(batches) - truth.loss) <= tolerance * truth.loss);
        CHECK(worst_error(run.gradients(), truth.gradients) <= tolerance);
        CHECK(run.evaluate(batches[0]) == Approx(textbook::loss(model, weights, {batches[0]})).epsilon(tolerance));
    }
}

TEST_CASE("single precision and bf16 storage stay within their rounding of the textbook model") {
    // fp32: 2^-24 per operation over a depth of a few hundred gives about 1e-5 at worst. bf16 storage: each stored
    // tensor is rounded to 2^-9; through about 20 stored tensors in a row of a 2-layer model, and weights rounded too,
    // the worst element of a gradient moves by a few percent of the largest one. What biases add to all keys cancels in
    // the gradient of q, as a row of dS sums to 0, but its rounding does not.
    const TextbookCase c =
        GENERATE(TextbookCase{.name = "plain", .sizes = {.seq_len = 8}},
                 TextbookCase{.name = "biases", .bias = true, .out_bias = true, .sizes = {.seq_len = 8}},
                 TextbookCase{.name = "norms", .norms = true, .sizes = {.seq_len = 8}},
                 TextbookCase{.name = "GELU",
                              .bias = true,
                              .out_bias = true,
                              .mlp_bias = true,
                              .mlp = MlpKind::gelu_tanh,
                              .sizes = {.seq_len = 8}},
                 TextbookCase{.name = "exact GELU",
                              .bias = true,
                              .out_bias = true,
                              .mlp_bias = true,
                              .mlp = MlpKind::gelu_exact,
                              .sizes = {.seq_len = 8}});
    INFO(c.name);
    const Errors single = compare(c, kFloat32);
    CHECK(single.loss <= 1e-6);
    CHECK(single.gradient <= 2e-5);
    const Errors mixed = compare(c, kMixedBf16);
    CHECK(mixed.loss <= 5e-3);
    CHECK(mixed.gradient <= (c.bias ? 0.15 : 0.1));
    CHECK(mixed.gradient > 1e-4);  // it is bf16 that was tested
}

// The gradient of a norm's weight comes from GEMMs with a matrix that carries it, divided by it: where it is 0, by the
// least factor (math/rms.h). That puts 2^-40 of a term where none should be: 1e-12 of a sum's size, and as much
// again in each of the two layers and the head that follow. In bf16 it is far below the rounding of the test before.
TEST_CASE("a norm's weight of 0 has the gradient that it should have") {
    ModelConfig model = tiny_model();
    model.tie_word_embeddings = GENERATE(false, true);
    textbook::Weights weights = textbook::random_weights(model, 7);
    weights.at("model.layers.0.input_layernorm.weight")[3] = 0;
    weights.at("model.layers.1.post_attention_layernorm.weight")[5] = -0.0;
    weights.at("model.norm.weight")[0] = 1e-30;
    const std::vector<textbook::Batch> batches{random_batch(model, 2, 6, 100, false)};
    const textbook::Result truth = textbook::loss_and_gradients(model, weights, batches);
    for (const auto& [precision, tolerance] :
         {std::pair{kFloat64, 16 * 0x1p-40}, std::pair{kFloat32, 2e-5}, std::pair{kMixedBf16, 0.1}}) {
        ModelRun run(model, {}, precision);
        run.start();
        run.set_weights(weights);
        CHECK(std::abs(run.step(batches) - truth.loss) <= tolerance * truth.loss);
        CHECK(worst_error(run.gradients(), truth.gradients) <= tolerance);
    }
}

TEST_CASE("recompute gives the same bits as storing") {
    ModelConfig model = tiny_model();
    model.mlp = GENERATE(MlpKind::swiglu, MlpKind::gelu_tanh, MlpKind::gelu_exact);
    model.mlp_bias = model.mlp != MlpKind::swiglu;
    const textbook::Weights weights = textbook::random_weights(model, 7);
    const std::vector<textbook::Batch> batches{random_batch(model, 2, 6, 1)};
    const auto gradients = [&](Recompute recompute, Precision precision) {
        ModelRun run(model, {.recompute = recompute}, precision);
        run.start();
        run.set_weights(weights);
        run.step(batches);
        return run.gradients();
    };
    for (const Precision precision : {kFloat32, kMixedBf16}) {
        const auto stored = gradients(Recompute::none, precision);
        CHECK(gradients(Recompute::swiglu, precision) == stored);
        CHECK(gradients(Recompute::mlp, precision) == stored);
    }
}

TEST_CASE("a target in the padding of the vocabulary is an error") {
    const ModelConfig model = tiny_model();
    ModelRun run(model, {}, kFloat32);
    run.start();
    run.set_weights(textbook::random_weights(model, 7));
    textbook::Batch batch = random_batch(model, 2, 6, 1);
    batch.targets[4] = static_cast<int>(model.vocab_size);
    const std::string vocab = std::to_string(model.vocab_size);
    CHECK_THROWS_WITH(run.step({batch}),
                      Catch::Contains("targets[4] is " + vocab) && Catch::Contains("below " + vocab));
}

TEST_CASE("accumulation equals one big batch") {
    const ModelConfig model = tiny_model();
    const textbook::Weights weights = textbook::random_weights(model, 7);
    const textbook::Batch big = random_batch(model, 4, 6, 1);
    std::vector<textbook::Batch> small;
    for (std::size_t i = 0; i < 4; ++i) {
        textbook::Batch one{.batch = 1, .seq_len = 6, .tokens = {}, .targets = {}, .document = {}};
        one.tokens.assign(big.tokens.begin() + static_cast<long>(6 * i),
                          big.tokens.begin() + static_cast<long>(6 * i + 6));
        one.targets.assign(big.targets.begin() + static_cast<long>(6 * i),
                           big.targets.begin() + static_cast<long>(6 * i + 6));
        small.push_back(one);
    }
    ModelRun at_once(model, {.batch = 4}, kFloat64), in_four(model, {.batch = 1}, kFloat64);
    for (ModelRun* run : {&at_once, &in_four}) {
        run->start();
        run->set_weights(weights);
    }
    CHECK(at_once.step({big}) == Approx(in_four.step(small)).epsilon(1e-14));
    CHECK(worst_error(in_four.gradients(), at_once.gradients()) <= 1e-13);
}

TEST_CASE("ten steps of AdamW follow the textbook model and optimizer") {
    ModelConfig model = tiny_model();
    model.attention_bias = model.attention_out_bias = model.mlp_bias = GENERATE(false, true);
    if (model.mlp_bias) model.mlp = MlpKind::gelu_tanh;
    if (model.mlp_bias) model.norm = GENERATE(NormKind::rmsnorm, NormKind::layernorm);
    model.qk_norm = !model.attention_bias && GENERATE(false, true);
    textbook::Weights weights = textbook::random_weights(model, 7);
    ModelRun run(model, {}, kFloat64);
    run.start();
    run.set_weights(weights);
    const OptimizerConfig optimizer;
    textbook::AdamW adamw({.beta1 = optimizer.beta1,
                           .beta2 = optimizer.beta2,
                           .eps = optimizer.eps,
                           .weight_decay = optimizer.weight_decay,
                           .max_grad_norm = 1.0});
    const HostViews& host = run.schedules.host;
    for (int t = 1; t <= 10; ++t) {
        const std::vector<textbook::Batch> batches{random_batch(model, 2, 6, static_cast<std::uint64_t>(t))};
        const double lr = 1e-2 / t;
        const textbook::Result truth = textbook::loss_and_gradients(model, weights, batches);
        const double norm = adamw.step(weights, truth.gradients, lr);

        CHECK(run.step(batches) == Approx(truth.loss).epsilon(1e-11));
        upload_scalar(*run.executor, host.lr, lr);
        upload_scalar(*run.executor, host.correction1, 1 / (1 - std::pow(optimizer.beta1, t)));
        upload_scalar(*run.executor, host.correction2, 1 / (1 - std::pow(optimizer.beta2, t)));
        upload_scalar(*run.executor, host.step, t);
        upload_scalar(*run.executor, host.drop_above, std::numeric_limits<double>::infinity());
        run.executor->run(Pass::update);
        CHECK(download_scalar(*run.executor, host.norm) == Approx(norm).epsilon(1e-11));
    }
    CHECK(download_scalar(*run.executor, host.skip) == 0);
    CHECK(worst_error(run.get(host.master), weights) <= 1e-10);
}
