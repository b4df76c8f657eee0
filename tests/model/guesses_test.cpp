// A decoder whose steps take guessed tokens too.
#include "src/core/errors.h"
#include "tests/catch.h"
#include "tests/model/launches.h"
#include "tests/model/pass_decoder.h"

using namespace coda;
using namespace coda::test;
using State = SequenceAdvance::State;

TEST_CASE("guesses change no token, whoever makes the steps") {
    // Greedy choices of a small model soon repeat themselves, so guesses come true; draws refute most.
    const ChoiceOptions greedy{.temperature = 0}, warm{.temperature = 0.7F, .seed = 11};
    const ChoiceOptions penalty{.temperature = 0, .repetition_penalty = 1.3F};
    Model alone({.batch = 1, .context = 60});
    const std::unique_ptr<BatchDecoder> passes = pass_decoder(alone.run);
    const Tokens free = tokens_of(*passes, 0, sequence_of({1, 2, 3}, 100, greedy));
    REQUIRE(free.size() == 57);
    std::vector<SequenceStart> starts;
    for (const ChoiceOptions& choice : {greedy, warm, penalty})
        for (const std::int64_t most : {1, 2, 9, 100}) starts.push_back(sequence_of({1, 2, 3}, most, choice));
    starts.push_back(sequence_of({4}, 100, greedy));
    starts.push_back(sequence_of(Tokens(59, 2), 100, greedy));  // room for one token
    starts.push_back(sequence_of({1, 2, 3}, 100, greedy));
    starts.back().end_tokens = {free[30]};
    std::vector<Tokens> expected;
    for (const SequenceStart& start : starts) expected.push_back(tokens_of(*passes, 0, start));

    for (const std::int64_t rows_each : {2, 4, 8}) {
        Model model({.batch = 2, .context = 60, .rows_each = rows_each});
        for (const int most : {1, 32}) {
            BatchDecoder decoder = model.decoder(std::make_unique<PassesPerLaunch>(model.run, most));
            CHECK(decoder.batch() == 2);
            CHECK(decoder.steps_per_call() == 1);
            for (std::size_t i = 0; i < starts.size(); ++i) {
                CAPTURE(rows_each, most, i);
                CHECK(tokens_of(decoder, 1, starts[i], 1) == expected[i]);
                // Another sequence runs next to it, and ends sooner or later.
                const std::size_t other = (i + 5) % starts.size();
                decoder.start(0, starts[other]);
                CHECK(tokens_of(decoder, 1, starts[i], 3) == expected[i]);
                decoder.stop(0);
            }
        }
    }
}

TEST_CASE("guesses that come true save steps") {
    Model model({.batch = 1, .context = 120, .rows_each = 8});
    const std::unique_ptr<BatchDecoder> decoder = pass_decoder(model.run);
    decoder->start(0, sequence_of({1, 2, 3}, 100, ChoiceOptions{.temperature = 0}));
    std::int64_t steps = 0, tokens = 0, calls = 0;
    for (auto state = State::running; state == State::running; ++calls) {
        const SequenceAdvance advance = decoder->advance(1)[0];
        steps += advance.steps;
        tokens += static_cast<std::int64_t>(advance.tokens.size());
        CHECK(advance.tokens.size() <= 8);
        state = advance.state;
    }
    CHECK(tokens == 100);
    CHECK(steps == calls);
    CHECK(steps < 90);
}

TEST_CASE("a row of guesses counts as long as the guesses before it came true") {
    Model model({.batch = 2, .context = 40, .rows_each = 4});
    constexpr auto kRuns = static_cast<std::int32_t>(RowState::running),
                   kIdle = static_cast<std::int32_t>(RowState::idle);
    constexpr auto kEnds = static_cast<std::int32_t>(RowState::ended),
                   kFails = static_cast<std::int32_t>(RowState::failed);
    // Row 0 begins with 1 2 1, so its guesses are 2 1 2; row 1 with 3, which has none.
    BatchDecoder decoder = model.decoder(std::make_unique<ScriptedLaunches>(std::vector<DecodedSteps>{
        {.tokens = {2, 1, 9, 9, 5, -1, -1, -1}, .states = {kRuns, kRuns, kRuns, kRuns, kRuns, kIdle, kIdle, kIdle}},
        // 1 2 1 2 1 9: no guess of 9. 3 5: none of 5.
        {.tokens = {2, -1, -1, -1, 3, -1, -1, -1}, .states = {kRuns, kIdle, kIdle, kIdle, kRuns, kIdle, kIdle, kIdle}},
        // ... 9 2: 1 9 2 are not what follows the latest 2: 1 9 2. 3 5 3: 5 3 5.
        {.tokens = {1, 9, -1, 7, 5, 3, 5, 8}, .states = {kRuns, kRuns, kFails, kRuns, kRuns, kEnds, kRuns, kRuns}},
        {.tokens = {-1, 6, 6, 6, -1, -1, -1, -1},
         .states = {kFails, kRuns, kRuns, kRuns, kIdle, kIdle, kIdle, kIdle}}}));
    decoder.start(0, sequence_of({1, 2, 1}, 30));
    decoder.start(1, sequence_of({3}, 30));
    const auto tokens = [](const SequenceAdvance& advance) { return advance.tokens; };
    std::vector<SequenceAdvance> made = decoder.advance(1);
    CHECK(tokens(made[0]) == Tokens{2, 1, 9});
    CHECK(tokens(made[1]) == Tokens{5});
    CHECK(made[0].steps == 1);
    made = decoder.advance(1);
    CHECK(tokens(made[0]) == Tokens{2});
    CHECK(tokens(made[1]) == Tokens{3});
    made = decoder.advance(1);
    CHECK(tokens(made[0]) == Tokens{1, 9});  // the row that failed is told when it is the first
    CHECK(made[0].state == State::running);
    CHECK(tokens(made[1]) == Tokens{5, 3});  // an end token ends it, whatever the guesses behind it became
    CHECK(made[1].state == State::ended);
    CHECK_THROWS_AS(decoder.advance(1), NonFiniteError);
    CHECK(decoder.advance(1)[0].state == State::idle);
}
