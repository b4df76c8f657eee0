// The decoder over the fused kernel, compared with the one that runs passes on the same executor, and with itself.
//
// Tolerance of logits: as between GPU and CPU (generation_test.cpp). Two ways round sums of another order to bf16
// between stages, so near the top two logits may trade places: then their distance in the passes' logits is within the
// tolerance's reach, kTie.
#include <csignal>
#include <numbers>

#include "src/core/interrupt.h"
#include "src/engine/hopper_executor.h"
#include "src/generate/score.h"
#include "tests/hopper/harness.h"
#include "tests/hopper/small_model.h"
#include "tests/model/pass_decoder.h"
#include "tests/model/sequences.h"

using namespace coda;
using namespace coda::test;
using Catch::Contains;

namespace {

constexpr double kRelativeRms = 2e-2;
constexpr double kTie = 4 * std::numbers::sqrt2 * kRelativeRms;  // of the logits' RMS: two errors of 4 sigma

/// Widths that are multiples of 16, as the kernel takes them; a vocabulary that is not.
ModelConfig fused_model(std::int64_t head_dim, bool bias = false, bool norms = false, std::int64_t window = 0) {
    ModelConfig model = small_model(head_dim, true, bias, norms, window);
    model.attention_out_bias = bias;
    model.hidden_size = 272;
    model.intermediate_size = 336;
    return model;
}

struct Generation {
    ModelRun run;
    std::unique_ptr<BatchDecoder> fused, passes;  // of the same cache: one at a time

    Generation(const ModelConfig& model, const GenerationShape& shape, PassSet more = {}, std::int64_t seq_len = 2)
        : run(model, {.batch = 1, .seq_len = seq_len, .passes = passes_of(Mode::generate) | more, .generation = shape},
              kMixedBf16) {
        run.start(make_hopper_executor);
        run.set_weights(coda::test::random_weights(model, 7));
        const auto pass = [this](Pass which) { run.executor->run(which); };
        DecodeLaunchesOffer offer = run.executor->offer_decode_launches(10);
        REQUIRE(offer.problem == "");
        fused = std::make_unique<BatchDecoder>(*run.executor, run.schedules, pass, std::move(offer.launches));
        passes = pass_decoder(run);
    }
};

}  // namespace

TEST_CASE("the fused decoder makes the tokens of passes, unless their logits tie", "[gpu]") {
    if (!has_hopper()) return;
    struct Case {
        std::int64_t head_dim;
        bool bias = false, norms = false;
        std::int64_t window = 0;
        int rows = 4;
    };
    // Windows end within a block of the cache and with one.
    for (const auto& [head_dim, bias, norms, window, rows] :
         {Case{64}, Case{128}, Case{64, true}, Case{128, true, false, 0, 2}, Case{64, false, true, 0, 2},
          Case{128, false, true, 90}, Case{64, false, false, 50}, Case{128, false, false, 256, 2}}) {
        const GenerationShape shape{.batch = rows, .context = 400};
        const ModelConfig model = fused_model(head_dim, bias, norms, window);
        Generation expected(model, shape), found(model, shape);
        const std::size_t prompts[] = {300, 1, 130};
        const int sequences = rows - 1;  // the last row is idle
        for (int row = 0; row < sequences; ++row) {
            const SequenceStart start =
                sequence_of(random_tokens(prompts[row], static_cast<std::uint64_t>(row)), 99, {.temperature = 0});
            expected.passes->start(row, start);
            found.fused->start(row, start);
        }
        int ties = 0;
        for (int step = 0; step < 99; ++step) {
            const std::vector<SequenceAdvance> theirs = expected.passes->advance(1), ours = found.fused->advance(1);
            for (int row = 0; row < sequences; ++row) {
                const auto at = static_cast<std::size_t>(row);
                CAPTURE(head_dim, bias, norms, window, row, step);
                REQUIRE(theirs[at].tokens.size() == 1);
                REQUIRE(ours[at].tokens.size() == 1);
                const std::int32_t token = theirs[at].tokens[0], other = ours[at].tokens[0];
                const std::vector<float> logits = expected.passes->logits(row);
                CHECK(relative_rms(found.fused->logits(row), logits) < kRelativeRms);
                if (other == token) continue;
                ++ties;
                const double apart =
                    logits.at(static_cast<std::size_t>(token)) - logits.at(static_cast<std::size_t>(other));
                CHECK(apart < kTie * rms(logits));
                if (ours[at].state == SequenceAdvance::State::running) found.fused->replace_newest(row, token);
            }
        }
        WARN("heads of " << head_dim
                         << (bias    ? ", biases"
                             : norms ? ", norms"
                                     : "")
                         << ", window " << window << ": " << ties << " ties of " << sequences * 99 << " tokens");
        CHECK(ties < 10 * sequences);
    }
}

TEST_CASE("the fused decoder has the same bits by itself, in a batch of 8, in any row, in calls of any length",
          "[gpu]") {
    if (!has_hopper()) return;
    const ModelConfig model = fused_model(64);
    const SequenceStart sequence =
        sequence_of(random_tokens(70, 1), 200, {.temperature = 0.9f, .top_k = 50, .seed = 5});
    Generation alone(model, {.batch = 1, .context = 300}), batch(model, {.batch = 8, .context = 300});
    const Tokens expected = tokens_of(*alone.fused, 0, sequence, 1);
    const std::vector<float> logits = alone.fused->logits(0);
    REQUIRE(expected.size() == 200);
    CHECK(tokens_of(*alone.fused, 0, sequence, 32) == expected);
    CHECK(alone.fused->logits(0) == logits);
    for (const int row : {0, 5, 7}) {
        for (int other = 0; other < 8; ++other) {
            const auto length = static_cast<std::size_t>(1 + 35 * other);
            if (other != row) batch.fused->start(other, sequence_of(random_tokens(length, length), 5 + 20 * other));
        }
        CHECK(tokens_of(*batch.fused, row, sequence, row == 5 ? 32 : 7) == expected);
        CHECK(batch.fused->logits(row) == logits);
    }
}

TEST_CASE("guesses change no token of the fused decoder, nor of passes", "[gpu]") {
    if (!has_hopper()) return;
    struct Case {
        std::int64_t head_dim;
        bool bias = false, norms = false;
        std::int64_t window = 0;
    };
    for (const auto& [head_dim, bias, norms, window] :
         {Case{64}, Case{128, true}, Case{64, false, true}, Case{128, false, true, 90}, Case{64, false, false, 50}}) {
        const ModelConfig model = fused_model(head_dim, bias, norms, window);
        Generation apart(model, {.batch = 2, .context = 400});
        for (const std::int64_t sequences : {1, 2}) {
            Generation together(model, {.batch = sequences, .context = 400, .rows_each = 8 / sequences});
            // Greedy choices repeat themselves, so that guesses come true; draws refute most.
            for (const ChoiceOptions& choice :
                 {ChoiceOptions{.temperature = 0}, ChoiceOptions{.temperature = 0.9f, .top_k = 50, .seed = 5}})
                for (const bool fused : {true, false}) {
                    CAPTURE(head_dim, bias, norms, window, sequences, fused, choice.temperature);
                    BatchDecoder& plain = fused ? *apart.fused : *apart.passes;
                    BatchDecoder& guessing = fused ? *together.fused : *together.passes;
                    const SequenceStart start = sequence_of(random_tokens(70, 1), 300, choice);
                    const Tokens expected = tokens_of(plain, 0, start, 32);
                    REQUIRE(expected.size() == 300);
                    if (sequences == 2) guessing.start(0, sequence_of(random_tokens(33, 2), 400));
                    std::int64_t steps = 0;
                    CHECK(tokens_of(guessing, static_cast<int>(sequences) - 1, start, 1, &steps) == expected);
                    if (choice.temperature > 0) continue;
                    CHECK(steps < 300);
                    WARN("heads of " << head_dim << ": 300 tokens in " << steps << " steps");
                }
        }
    }
}

TEST_CASE("the fused decoder's loss of 4096 tokens is the evaluation's", "[gpu]") {
    if (!has_hopper()) return;
    Generation model(fused_model(64), {.batch = 1, .context = 4097}, {Pass::evaluate}, 4096);
    const Tokens text = random_tokens(4097, 3);
    textbook::Batch batch;
    batch.batch = 1;
    batch.seq_len = 4096;
    batch.tokens.assign(text.begin(), text.end() - 1);
    batch.targets.assign(text.begin() + 1, text.end());
    const double expected = model.run.evaluate(batch);
    // The losses of single tokens differ by some 1e-2; the mean of 4096 by less than a thousandth. A wrong position or
    // token costs 1e-2 in the mean.
    CHECK(std::abs(score(*model.fused, text).loss - expected) < 1e-3);
    CHECK(std::abs(score(*model.passes, text).loss - expected) < 1e-3);
}

TEST_CASE("an interrupt ends a launch of the fused kernel after its step, and nothing is lost", "[gpu]") {
    if (!has_hopper()) return;
    Generation model(fused_model(128), {.batch = 1, .context = 300});
    const SequenceStart sequence = sequence_of(random_tokens(7, 1), 100);
    const Tokens expected = tokens_of(*model.fused, 0, sequence, 32);
    model.fused->start(0, sequence);
    watch_interrupts();
    std::raise(SIGTERM);
    const SequenceAdvance first = model.fused->advance(100)[0];
    watch_interrupts();  // nothing is asked for any more
    CHECK(!first.tokens.empty());
    CHECK(first.tokens.size() <= 32);
    CHECK(first.state == SequenceAdvance::State::running);
    Tokens made = first.tokens;
    const SequenceAdvance rest = model.fused->advance(100)[0];
    made.insert(made.end(), rest.tokens.begin(), rest.tokens.end());
    CHECK(made == expected);
}

TEST_CASE("a logit of the fused kernel that is not finite ends with the row and the position", "[gpu]") {
    if (!has_hopper()) return;
    const ModelConfig model = fused_model(64);
    Generation generation(model, {.batch = 2, .context = 300});
    textbook::Weights weights = coda::test::random_weights(model, 7);
    weights.at("model.norm.weight")[0] = std::nan("");
    generation.run.set_weights(weights);
    generation.fused->start(1, sequence_of(random_tokens(40, 1), 10));
    std::string message;
    try {
        generation.fused->advance(32);
    } catch (const Error& error) {
        message = error.what();
    }
    CHECK_THAT(message, Contains("the logit of token 0 is not finite, at position 40 of the sequence in row 1"));
    CHECK(generation.fused->advance(1)[1].state == SequenceAdvance::State::idle);
}

TEST_CASE("a model that the fused kernel does not take is refused with the operand", "[gpu]") {
    if (!has_hopper()) return;
    const ModelConfig model = small_model(64, true);  // of width 264
    const GenerationShape shape{.batch = 1, .context = 20};
    ModelRun run(model, {.batch = 1, .seq_len = 2, .passes = passes_of(Mode::generate), .generation = shape},
                 kMixedBf16);
    run.start(make_hopper_executor);
    const DecodeLaunchesOffer offer = run.executor->offer_decode_launches(2);
    CHECK(!offer.launches);
    CHECK_THAT(offer.problem, Contains("width is 264") && Contains("multiples of 16"));
}

TEST_CASE("the fused decoder makes 100 000 tokens, the same in every round", "[gpu][.long]") {
    if (!has_hopper()) return;
    constexpr std::int64_t kContext = 2000, kTokens = 100'000;
    Generation model(fused_model(64), {.batch = 8, .context = kContext});
    std::vector<Tokens> first;
    for (std::int64_t made = 0; made < kTokens;) {
        for (int row = 0; row < 8; ++row)
            model.fused->start(row, sequence_of(random_tokens(static_cast<std::size_t>(1 + 100 * row), 9), kContext));
        std::vector<Tokens> tokens(8);
        for (bool running = true; running;) {
            running = false;
            const std::vector<SequenceAdvance> advances = model.fused->advance(32);
            for (std::size_t row = 0; row < 8; ++row) {
                const SequenceAdvance& here = advances[row];
                tokens[row].insert(tokens[row].end(), here.tokens.begin(), here.tokens.end());
                running = running || here.state == SequenceAdvance::State::running;
            }
        }
        for (const Tokens& each : tokens) made += static_cast<std::int64_t>(each.size());
        if (first.empty()) first = tokens;
        REQUIRE(tokens == first);
    }
}
