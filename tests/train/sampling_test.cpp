// Sampling: the logits against the textbook model's, and what follows what.
#include "src/train/sampling.h"

#include <algorithm>
#include <random>

#include "kernels/ops/choose_token/choose.h"
#include "src/core/errors.h"
#include "tests/catch.h"
#include "tests/io/scratch_folder.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;
using Catch::Contains;

namespace {

constexpr int kSeparator = 5;

std::vector<std::int32_t> random_tokens(const ModelConfig& model, std::size_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::int32_t> tokens(count);
    for (std::int32_t& token : tokens) {
        token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(model.vocab_size));
    }
    return tokens;
}

/// The textbook's logits of what follows the last seq_len of `tokens`; documents begin at kSeparator.
std::vector<double> textbook_logits(const ModelConfig& model, const textbook::Weights& weights,
                                    const std::vector<std::int32_t>& tokens, std::size_t seq_len, bool documents) {
    const std::size_t length = std::min(tokens.size(), seq_len);
    textbook::Batch batch;
    batch.batch = 1;
    batch.seq_len = static_cast<std::int64_t>(length);
    batch.tokens.assign(tokens.end() - static_cast<std::ptrdiff_t>(length), tokens.end());
    batch.targets.assign(length, -1);
    batch.restart_positions = documents;
    int document = 0;
    for (const int token : batch.tokens) {
        document += token == kSeparator;
        if (documents) batch.document.push_back(document);
    }
    const std::vector<double> all = textbook::logits(model, weights, batch);
    return {all.end() - static_cast<std::ptrdiff_t>(model.vocab_size), all.end()};
}

Sampler sampler_of(ModelRun& run, bool documents) {
    return {*run.executor,        run.schedules.host,          *run.tokens,
            run.model.vocab_size, documents ? kSeparator : -1, [&run] { run.executor->run(Pass::sample); }};
}

}  // namespace

// Tolerance: see tests/model/textbook_test.cpp; a wrong row, position or mask shows at 1e-2 and more.
TEST_CASE("the logits of the sample pass in double are the textbook model's") {
    const ModelConfig model = tiny_model();
    const textbook::Weights weights = textbook::random_weights(model, 7);
    const bool documents = GENERATE(false, true);
    const Recompute recompute = GENERATE(Recompute::none, Recompute::mlp);
    const Sizes sizes{.batch = 3, .seq_len = 6, .chunks = 2, .recompute = recompute, .document_mask = documents};
    ModelRun run(model, sizes, kFloat64);
    run.start();
    run.set_weights(weights);
    Sampler sampler = sampler_of(run, documents);
    for (std::size_t length = 1; length <= 14; ++length) {
        std::vector<std::int32_t> tokens = random_tokens(model, length, length);
        if (length > 3) tokens[length - 3] = kSeparator;
        run.step({random_batch(model, 3, 6, length)});  // what a training step leaves behind must not matter
        const std::vector<double> expected = textbook_logits(model, weights, tokens, 6, documents);
        INFO(length << " tokens");
        CHECK(relative_error(sampler.logits(tokens), expected) < 1e-12);
    }
    CHECK_THROWS_AS(sampler.logits({}), Error);
}

// bf16 keeps 8 bits: each of the some 20 roundings on a value's way through two layers is 2^-9 at most, relative to the
// largest value; 5e-2 is 25 of them, a wrong row shows at 1.
TEST_CASE("the sample pass runs with weights and activations in bf16") {
    const ModelConfig model = tiny_model();
    const textbook::Weights weights = textbook::random_weights(model, 7);
    ModelRun run(model, {}, kMixedBf16);
    run.start();
    run.set_weights(weights);
    const std::vector<std::int32_t> tokens = random_tokens(model, 4, 1);
    const std::vector<double> expected = textbook_logits(model, weights, tokens, 6, false);
    CHECK(relative_error(sampler_of(run, false).logits(tokens), expected) < 5e-2);
}

TEST_CASE("the sample pass is checked for hazards and runs one sequence of a micro-batch") {
    ModelRun run(tiny_model(), {.batch = 4, .seq_len = 6}, kFloat32);
    plan_and_check(run.schedules);
    CHECK(std::get<Embed>(run.schedules.sample.front().op).tokens.cols == 6);
    CHECK(std::get<Linear>(run.schedules.sample.back().op).a.rows == 1);
    std::swap(run.schedules.sample[1], run.schedules.sample[2]);
    CHECK_THAT(message_of([&] { plan_and_check(run.schedules); }), Contains("the sample schedule has"));
}

TEST_CASE("a sample follows its prompt token by token and stops at a logit that is not finite") {
    const ModelConfig model = tiny_model();
    textbook::Weights weights = textbook::random_weights(model, 7);
    ModelRun run(model, {}, kFloat64);
    run.start();
    run.set_weights(weights);
    Sampler sampler = sampler_of(run, false);
    const std::vector<std::int32_t> prompt = random_tokens(model, 3, 2);
    SamplingOptions options;
    options.tokens = 12;
    options.choice = {.temperature = 0.7f, .top_k = 5, .repetition_penalty = 1.5f, .seed = 4};
    std::vector<std::int32_t> sampled, expected = prompt;
    sampler.sample(prompt, options, [&](std::int32_t token) { sampled.push_back(token); });
    const sampling::Rules rules = sampling::rules_of(options.choice);
    while (expected.size() < 15) {
        const std::vector<double> logits = textbook_logits(model, weights, expected, 6, false);
        std::vector<float> row;
        for (std::size_t id = 0; id < logits.size(); ++id) {
            const bool seen = std::count(expected.begin(), expected.end(), static_cast<std::int32_t>(id)) > 0;
            row.push_back(sampling::penalised(static_cast<float>(logits[id]), seen, rules));
        }
        const auto position = static_cast<std::int64_t>(expected.size());
        expected.push_back(sampling::choose(row, rules, sampling::draw_of(4, position)));
    }
    CHECK(sampled == std::vector<std::int32_t>(expected.begin() + 3, expected.end()));

    // An end token is the last one.
    options.end_tokens = {-1, sampled[4]};
    std::vector<std::int32_t> ended;
    sampler.sample(prompt, options, [&](std::int32_t token) { ended.push_back(token); });
    CHECK(ended ==
          std::vector<std::int32_t>(sampled.begin(), std::find(sampled.begin(), sampled.end(), sampled[4]) + 1));

    weights.at("model.norm.weight")[0] = std::nan("");
    run.set_weights(weights);
    CHECK_THROWS_AS(sampler.sample(prompt, options, [](std::int32_t) {}), NonFiniteError);
}

TEST_CASE("what a sample begins with") {
    ModelConfig model = tiny_model();
    const std::unique_ptr<TextCodec> bytes = make_byte_codec();
    Prompt prompt;
    const auto fault = [&](TextCodec* codec) { return message_of([&] { prompt_tokens(prompt, model, codec); }); };
    CHECK(prompt_tokens(prompt, model, bytes.get()) == std::vector<std::int32_t>{'\n'});
    CHECK_THAT(fault(nullptr), Contains("--prompt-tokens"));
    prompt.tokens = {1, 36};
    CHECK(prompt_tokens(prompt, model, nullptr) == std::vector<std::int32_t>{1, 36});
    prompt.tokens = {1, 37};
    CHECK_THAT(fault(nullptr), Contains("37") && Contains("vocab_size"));
    prompt.tokens.clear();

    model.vocab_size = 256;
    prompt.text = "a\xc3\xbc";
    CHECK(prompt_tokens(prompt, model, bytes.get()) == std::vector<std::int32_t>{'a', 0xc3, 0xbc});
    CHECK(bytes->decode('a') + bytes->decode(0xc3) + bytes->decode(0xbc) == *prompt.text);
    CHECK_THAT(fault(nullptr), Contains("--prompt") && Contains("--tokenizer"));

    model.bos_token_id = 3;
    CHECK(prompt_tokens(prompt, model, bytes.get()) == std::vector<std::int32_t>{3, 'a', 0xc3, 0xbc});
    prompt.text.reset();
    CHECK(prompt_tokens(prompt, model, bytes.get()) == std::vector<std::int32_t>{3});
    CHECK(prompt_tokens(prompt, model, nullptr) == std::vector<std::int32_t>{3});
    prompt.tokens = {8};
    CHECK(prompt_tokens(prompt, model, nullptr) == std::vector<std::int32_t>{8});
}
