// A decoder over launches of many steps, without the kernel that has them: passes in its place, or a script.
#include "src/generate/batch_decoder.h"

#include <csignal>

#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/generate/choose_launches.h"
#include "src/generate/score.h"
#include "tests/catch.h"
#include "tests/io/scratch_folder.h"
#include "tests/model/launches.h"
#include "tests/model/pass_decoder.h"
#include "tests/model/sequences.h"

using namespace coda;
using namespace coda::test;
using Catch::Contains;

namespace {

using State = SequenceAdvance::State;

struct Made {
    std::vector<Tokens> tokens;
    std::vector<State> ends;
};

/// Three sequences that end by an end token, by their length and by the context.
Made made_of(Decoder& decoder, const Tokens& end_tokens, int steps) {
    SequenceStart ends = sequence_of({1, 2, 3}, 100, 1);
    ends.end_tokens = end_tokens;
    decoder.start(0, ends);
    decoder.start(1, sequence_of({4}, 7, 2));
    decoder.start(2, sequence_of({5, 6, 7, 8, 9}, 100, 3));
    Made made{.tokens = std::vector<Tokens>(3), .ends = std::vector<State>(3, State::running)};
    while (std::count(made.ends.begin(), made.ends.end(), State::running) > 0) {
        const std::vector<SequenceAdvance> advances = decoder.advance(steps);
        for (std::size_t row = 0; row < 3; ++row) {
            const Tokens& tokens = advances[row].tokens;
            made.tokens[row].insert(made.tokens[row].end(), tokens.begin(), tokens.end());
            if (advances[row].state != State::idle) made.ends[row] = advances[row].state;
        }
    }
    return made;
}

/// The CPU's executor, with an offer of launches. It counts as asynchronous: an upload is finished by finish().
class OfferingExecutor : public Executor {
  public:
    OfferingExecutor(Executor& cpu, DecodeLaunchesOffer offer) : cpu_(cpu), offer_(std::move(offer)) {}
    DecodeLaunchesOffer offer_decode_launches(double watchdog_seconds) override {
        watchdog = watchdog_seconds;
        return std::move(offer_);
    }
    double watchdog = 0;

    std::string device_name() const override { return cpu_.device_name(); }
    std::string device_model() const override { return cpu_.device_model(); }
    const Memory& memory() const override { return cpu_.memory(); }
    void upload(const View& view, const void* source) override {
        cpu_.upload(view, source);
        finished = false;
    }
    void finish() override { finished = true; }
    bool finished = true;
    void download(const View& view, void* target) override { cpu_.download(view, target); }
    std::span<const std::byte> bytes(const View& view, std::vector<std::byte>& staging) override {
        return cpu_.bytes(view, staging);
    }
    std::unique_ptr<Readback> read_values(const std::vector<View>& views) override { return cpu_.read_values(views); }
    StateCopy& make_state_copy(const std::vector<View>& views) override { return cpu_.make_state_copy(views); }
    std::int64_t first_nonfinite(const View& view) override { return cpu_.first_nonfinite(view); }
    std::vector<RowStats> row_stats(const View& view) override { return cpu_.row_stats(view); }
    CodeCounts count_codes(const View& codes) override { return cpu_.count_codes(codes); }
    void run(Pass pass) override { cpu_.run(pass); }
    void run_observed(Pass pass, StepObserver& observer) override { cpu_.run_observed(pass, observer); }
    void run_checked(Pass pass, const std::function<void(const OracleLine&)>& line) override {
        cpu_.run_checked(pass, line);
    }

  private:
    Executor& cpu_;
    DecodeLaunchesOffer offer_;
};

/// What choose_launches() says on the console, and the steps of the launches that it takes.
std::pair<std::string, int> chosen(Executor& executor, Model& model, const DecoderOptions& options) {
    std::FILE* file = std::tmpfile();
    REQUIRE(file != nullptr);
    int steps = 0;
    {
        Console console(file);
        steps = choose_launches(executor, model.run.schedules, model.pass(), options, console)->most_steps();
    }
    std::string said(static_cast<std::size_t>(std::ftell(file)), ' ');
    std::rewind(file);
    CHECK(std::fread(said.data(), 1, said.size(), file) == said.size());
    std::fclose(file);
    return {said, steps};
}

}  // namespace

TEST_CASE("a sequence has been prefilled when start() returns") {
    Model model({.batch = 1, .context = 20});
    OfferingExecutor executor(*model.run.executor, {});
    bool prefilled = false;
    BatchDecoder decoder(
        executor, model.run.schedules,
        [&](Pass pass) {
            model.pass()(pass);
            prefilled = is_prefill(pass);
            executor.finished = false;
        },
        std::make_unique<PassesPerLaunch>(model.run, 1));
    for (const Tokens& prompt : {Tokens{1, 2, 3}, Tokens{1}}) {
        decoder.start(0, sequence_of(prompt, 4));
        CHECK(executor.finished);
        CHECK(prefilled);
    }
}

TEST_CASE("launches of many steps make the tokens of passes, whatever the steps per launch and call") {
    Model model({.batch = 3, .context = 20});
    const std::unique_ptr<BatchDecoder> passes = pass_decoder(model.run);
    const Tokens free = made_of(*passes, {}, 1).tokens[0];
    REQUIRE(free.size() == 17);
    const Made expected = made_of(*passes, {free[9]}, 1);
    CHECK(expected.ends == std::vector{State::ended, State::length, State::length});
    CHECK(expected.tokens[1].size() == 7);
    CHECK(expected.tokens[2].size() == 15);
    for (const int most : {1, 3, 32}) {
        for (const int steps : {1, 4, 100}) {
            CAPTURE(most, steps);
            BatchDecoder decoder = model.decoder(std::make_unique<PassesPerLaunch>(model.run, most));
            const Made made = made_of(decoder, {free[9]}, steps);
            CHECK(made.tokens == expected.tokens);
            CHECK(made.ends == expected.ends);
        }
    }
}

TEST_CASE("a call of many steps is launches of up to the most, and no more when all have ended") {
    Model model({.batch = 2, .context = 200});
    auto owned = std::make_unique<PassesPerLaunch>(model.run, 32);
    PassesPerLaunch& launches = *owned;
    BatchDecoder decoder = model.decoder(std::move(owned));
    CHECK(decoder.steps_per_call() == 32);
    decoder.start(1, sequence_of({1, 2}, 190));
    CHECK(decoder.advance(70)[1].tokens.size() == 70);
    CHECK(launches.launches == std::vector{32, 32, 6});
    decoder.start(1, sequence_of({1, 2}, 40));
    CHECK(decoder.advance(150)[1].tokens.size() == 40);
    CHECK(launches.launches == std::vector{32, 32, 6, 32, 32});
    decoder.advance(5);
    CHECK(launches.launches.size() == 5);
}

TEST_CASE("an interrupt ends a launch after its step, and the call") {
    Model model({.batch = 1, .context = 100});
    BatchDecoder decoder = model.decoder(std::make_unique<PassesPerLaunch>(model.run, 8));
    const std::unique_ptr<BatchDecoder> passes = pass_decoder(model.run);
    passes->start(0, sequence_of({1, 2}, 6));
    const Tokens expected = passes->advance(6)[0].tokens;
    for (Decoder* each : {static_cast<Decoder*>(&decoder), static_cast<Decoder*>(passes.get())}) {
        each->start(0, sequence_of({1, 2}, 6));
        watch_interrupts();
        std::raise(SIGTERM);
        const SequenceAdvance first = each->advance(30)[0];
        CHECK(first.tokens == Tokens{expected[0]});
        CHECK(first.state == State::running);
        watch_interrupts();  // nothing is asked for any more
        CHECK(each->advance(30)[0].tokens == Tokens(expected.begin() + 1, expected.end()));
    }
}

TEST_CASE("a logit that is not finite is told after the tokens before it") {
    Model model({.batch = 2, .context = 20});
    const auto state = [](RowState a, RowState b) {
        return std::vector{static_cast<std::int32_t>(a), static_cast<std::int32_t>(b)};
    };
    BatchDecoder decoder = model.decoder(std::make_unique<ScriptedLaunches>(std::vector<DecodedSteps>{
        {.tokens = {7, 8, 9, 10, 11, -1, 12, -1}, .states = state(RowState::running, RowState::failed)},
        {.tokens = {13, -1, 14, -1, 15, -1, 16, -1}, .states = state(RowState::running, RowState::failed)},
        {.tokens = {17, -1, 18, -1, 19, -1, 20, -1}, .states = state(RowState::running, RowState::idle)}}));
    decoder.start(0, sequence_of({1, 2}, 100));
    decoder.start(1, sequence_of({1, 2, 3}, 100));
    const std::vector<SequenceAdvance> before = decoder.advance(4);
    CHECK(before[0].tokens == Tokens{7, 9, 11, 12});
    CHECK(before[1].tokens == Tokens{8, 10});
    CHECK(before[1].state == State::running);
    CHECK_THROWS_AS(decoder.advance(4), NonFiniteError);
    const std::vector<SequenceAdvance> after = decoder.advance(4);
    CHECK(after[0].tokens == Tokens{17, 18, 19, 20});
    CHECK(after[1].state == State::idle);
}

TEST_CASE("bytes that steps must read: the matrices once per step, each sequence's cache as long as it is") {
    Model model({.batch = 2, .context = 20});
    const ModelConfig& shape = model.run.model;
    // Elements in fp32: qkv, attn_out, gate and up, down per layer; the head, whose rows are padded to 64.
    const double layer = 16.0 * (4 + 2 * 2) * 8 + 4 * 8 * 16 + 2 * 20 * 16 + 20 * 16;
    const double weights = 4 * (2 * layer + 64 * 16);
    const double position = 4.0 * 2 * 2 * 2 * 8;  // keys and values of two layers and heads
    REQUIRE(shape.num_hidden_layers == 2);
    const std::unique_ptr<BatchDecoder> decoder = pass_decoder(model.run);
    CHECK(decoder->bytes_read() == 0);
    decoder->start(0, sequence_of({1, 2, 3}, 4));
    CHECK(decoder->bytes_read() == 0);
    decoder->start(1, sequence_of({1}, 2));
    decoder->advance(10);  // lengths 3, 4, 5, 6 and 1, 2
    CHECK(decoder->bytes_read() == 4 * weights + (3 + 4 + 5 + 6 + 1 + 2) * position);
    CHECK(std::isnan(decoder->peak_bytes_per_s()));
}

TEST_CASE("the loss of a text by decoding is the evaluation's") {
    ModelConfig shape = tiny_model();
    shape.tie_word_embeddings = GENERATE(false, true);
    Model model({.batch = 1, .context = 13}, {Pass::evaluate}, shape);
    textbook::Batch batch;
    batch.batch = 1;
    batch.seq_len = 12;
    const Tokens text{3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9, 7};
    batch.tokens.assign(text.begin(), text.end() - 1);
    batch.targets.assign(text.begin() + 1, text.end());
    const double expected = model.run.evaluate(batch);
    BatchDecoder decoder = model.decoder(std::make_unique<PassesPerLaunch>(model.run, 32));
    std::size_t rows = 0;
    const Score found = score(decoder, text, [&](std::span<const float> row) {
        CHECK(row.size() == 37);
        ++rows;
    });
    CHECK(found.tokens == 12);
    CHECK(rows == 12);
    // Sums of fp32 in two orders; a wrong token or position shows at 1e-2.
    CHECK(std::abs(found.loss - expected) < 1e-5);
    CHECK_THAT(message_of([&] { score(decoder, std::span(text).first(1)); }),
               Contains("1 tokens: it takes 2 to the 13"));
    const Tokens outside{1, 37};
    CHECK_THAT(message_of([&] { score(decoder, outside); }), Contains("the token 37, outside of a vocabulary of 37"));
}

TEST_CASE("the fused kernel is taken where it is offered, and said why not where the model does not fit") {
    Model model({.batch = 1, .context = 20});
    Executor& cpu = *model.run.executor;
    const auto launches = [&] { return std::make_unique<PassesPerLaunch>(model.run, 32); };
    {
        OfferingExecutor gpu(cpu, {.launches = launches()});
        CHECK(chosen(gpu, model, {.watchdog_seconds = 7}) == std::pair<std::string, int>("", 32));
        CHECK(gpu.watchdog == 7);
    }
    {
        OfferingExecutor gpu(cpu, {.launches = launches()});
        CHECK(chosen(gpu, model, {.choice = DecoderChoice::passes}) == std::pair<std::string, int>("", 1));
    }
    const char* problem = "decode: embed: the model's width is 264";
    {
        OfferingExecutor gpu(cpu, {.problem = problem});
        const auto [said, steps] = chosen(gpu, model, {});
        CHECK(steps == 1);
        CHECK(said == text("note: tokens are made operation by operation, not by the fused kernel: ", problem, "\n"));
    }
    {
        OfferingExecutor gpu(cpu, {.problem = problem});
        CHECK_THAT(message_of([&] { chosen(gpu, model, {.choice = DecoderChoice::fused}); }),
                   Contains("--decoder fused: decode: embed") && Contains("264") && Contains("--decoder passes"));
    }
    CHECK(chosen(cpu, model, {}) == std::pair<std::string, int>("", 1));
    CHECK_THAT(message_of([&] { chosen(cpu, model, {.choice = DecoderChoice::fused}); }),
               Contains("--decoder fused") && Contains("Hopper GPU, and this is CPU"));
}
