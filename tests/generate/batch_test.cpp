#include "src/generate/batch.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/core/errors.h"
#include "src/generate/program/output.h"
#include "tests/catch.h"
#include "tests/generate/fakes.h"

using namespace coda;

namespace {

//                                0    1    2    3     4       5           6           7
const std::vector<std::string> kTexts{"?", "a", "b", "\n", "<end>", "\xE4\xB8", "\xAD", "a\nb"};

GenerationRequest request_of(nlohmann::json id, std::int64_t max_tokens, std::vector<std::string> stop = {}) {
    GenerationRequest request{.id = std::move(id), .max_tokens = max_tokens, .stop = std::move(stop)};
    return request;
}

/// Runs all of `requests`, in a prompt of {100 + index} each, and gives the answers; `pieces` has what was streamed.
std::vector<GenerationAnswer> run(ScriptedDecoder& decoder, const std::vector<GenerationRequest>& requests, int steps,
                                  std::map<std::string, std::string>& pieces) {
    ListCodec codec(kTexts);
    GenerationBatch batch(decoder, codec, [&](const GenerationRequest& request, std::string_view piece) {
        CHECK_FALSE(piece.empty());
        pieces[request.id.dump()] += piece;
    });
    std::vector<GenerationAnswer> answers;
    std::size_t next = 0;
    while (next < requests.size() || batch.running() > 0) {
        while (!batch.full() && next < requests.size()) {
            batch.start(requests[next], {100 + static_cast<std::int32_t>(next)}, {4});
            ++next;
        }
        for (GenerationAnswer& answer : batch.step(steps)) answers.push_back(std::move(answer));
    }
    return answers;
}

using Tokens = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("a sequence ends by an end token, a stop text or its length, whatever the batch and the steps per call") {
    const std::map<std::int32_t, Tokens> scripts{{100, {1, 2, 4, 1}},        // an end token
                                                 {101, {1, 3, 3, 2, 1, 2}},  // a stop text over two tokens
                                                 {102, {1, 5, 6, 2, 5, 1}},  // a character over two tokens, and half
                                                 {103, {2, 7, 1, 1}},        // a stop text within a token
                                                 {104, {1, 2, 5}},           // ends within a character
                                                 {105, {1, 3}}};             // ends with what might become a stop text
    const std::vector<GenerationRequest> requests{request_of("end", 10),      request_of("across", 10, {"\n\n"}),
                                                  request_of("character", 6), request_of("within", 10, {"zz", "\n"}),
                                                  request_of("half", 3),      request_of("begun", 2, {"\n\n"})};
    struct Expected {
        std::string text;
        Tokens tokens;
        Finish finish;
    };
    const std::map<std::string, Expected> expected{{"end", {"ab", {1, 2, 4}, Finish::stop}},
                                                   {"across", {"a", {1, 3, 3}, Finish::stop}},
                                                   {"character",
                                                    {"a\xE4\xB8\xAD"
                                                     "b\xEF\xBF\xBD"
                                                     "a",
                                                     {1, 5, 6, 2, 5, 1},
                                                     Finish::length}},
                                                   {"within", {"ba", {2, 7}, Finish::stop}},
                                                   {"half", {"ab\xEF\xBF\xBD", {1, 2, 5}, Finish::length}},
                                                   {"begun", {"a\n", {1, 3}, Finish::length}}};
    for (const int batch : {1, 2, 3, 8}) {
        for (const int steps : {1, 2, 3, 32}) {
            INFO(batch << " batch, " << steps << " steps");
            ScriptedDecoder decoder(batch, scripts);
            std::map<std::string, std::string> pieces;
            const std::vector<GenerationAnswer> answers = run(decoder, requests, steps, pieces);
            REQUIRE(answers.size() == requests.size());
            for (const GenerationAnswer& answer : answers) {
                INFO(answer.id);
                const Expected& one = expected.at(answer.id.get<std::string>());
                CHECK(answer.text == one.text);
                CHECK(answer.tokens == one.tokens);
                CHECK(answer.finish == one.finish);
                CHECK(answer.prompt_tokens == 1);
                CHECK(answer.ms >= 0);
                CHECK(pieces[answer.id.dump()] == one.text);
            }
            for (int row = 0; row < batch; ++row) CHECK(decoder.idle(row));
        }
    }
}

TEST_CASE("answers come in the order of completion") {
    ScriptedDecoder decoder(3, {{100, {1, 1, 1, 4}}, {101, {1, 4}}, {102, {4}}});
    std::map<std::string, std::string> pieces;
    std::vector<int> order;
    for (const auto& answer : run(decoder, {request_of(0, 9), request_of(1, 9), request_of(2, 9)}, 32, pieces)) {
        order.push_back(answer.id);
    }
    CHECK(order == std::vector<int>{2, 1, 0});
}

TEST_CASE("an interrupt leaves what was made") {
    ScriptedDecoder decoder(2, {{100, {1, 5, 6, 2}}, {101, {2, 2}}});
    ListCodec codec(kTexts);
    std::string streamed;
    GenerationBatch batch(decoder, codec, [&](const GenerationRequest&, std::string_view piece) { streamed += piece; });
    batch.start(request_of(0, 9), {100}, {4});
    batch.start(request_of(1, 9), {101}, {4});
    CHECK(batch.full());
    CHECK_THROWS_AS(batch.start(request_of(2, 9), {100}, {4}), Error);
    CHECK(batch.step(2).empty());
    const std::vector<GenerationAnswer> answers = batch.cancel();
    REQUIRE(answers.size() == 2);
    CHECK(answers[0].text == "a\xEF\xBF\xBD");
    CHECK(answers[0].tokens == Tokens{1, 5});
    CHECK(answers[0].finish == Finish::cancelled);
    CHECK(answers[1].text == "bb");
    CHECK(batch.running() == 0);
    CHECK((decoder.idle(0) && decoder.idle(1)));
    CHECK(batch.figures().tokens == 4);
    CHECK(batch.figures().steps == 4);
    CHECK(batch.figures().prompt_tokens == 2);
    CHECK(batch.figures().sequences == 2);
    CHECK(batch.figures().first_token_s.has_value());
}

TEST_CASE("a sequence without a token yet asks for one step, all others for what the decoder makes at a time") {
    ScriptedDecoder decoder(2, {});
    ListCodec codec(kTexts);
    GenerationBatch batch(decoder, codec, [](const GenerationRequest&, std::string_view) {});
    CHECK(batch.usual_steps() == 32);
    batch.start(request_of("a", 90), {100}, {});
    CHECK(batch.usual_steps() == 1);
    batch.step(1);
    CHECK(batch.usual_steps() == 32);
    batch.start(request_of("b", 90), {100}, {});
    CHECK(batch.usual_steps() == 1);
}

TEST_CASE("figures have the bytes that the batch's own steps read, and their share of the memory's peak") {
    ScriptedDecoder decoder(1, {});
    decoder.read = 5e9;
    ListCodec codec(kTexts);
    GenerationBatch batch(decoder, codec, [](const GenerationRequest&, std::string_view) {});
    batch.start(request_of("a", 90), {100}, {});
    decoder.read = 9e9;
    batch.step(1);
    CHECK(batch.figures().bytes_read == 4e9);
    CHECK(batch.figures().peak_bytes_per_s == 8e12);
    GenerationFigures figures{.prompt_tokens = 3,
                              .tokens = 200,
                              .sequences = 1,
                              .prefill_s = 0.005,
                              .decode_s = 0.25,
                              .bytes_read = 0.5e12,
                              .peak_bytes_per_s = 4.92e12,
                              .first_token_s = 0.006};
    CHECK(figures_line(figures) ==
          "3 prompt tokens in 5.00 ms | first token after 6.00 ms | 200 tokens, 800 tok/s, 41% of the memory's 4.92 "
          "TB/s");
    figures.steps = 80;
    CHECK(figures_line(figures) ==
          "3 prompt tokens in 5.00 ms | first token after 6.00 ms | 200 tokens, 800 tok/s, 2.50 per step, 41% of the "
          "memory's 4.92 TB/s");
    figures.steps = 200;
    figures.peak_bytes_per_s = std::nan("");
    CHECK(figures_line(figures) == "3 prompt tokens in 5.00 ms | first token after 6.00 ms | 200 tokens, 800 tok/s");
}

TEST_CASE("a sequence is started as its request says") {
    ScriptedDecoder decoder(1, {});
    ListCodec codec(kTexts);
    GenerationBatch batch(decoder, codec, [](const GenerationRequest&, std::string_view) {});
    GenerationRequest request = request_of(0, 7);
    request.choice = {.temperature = 0.5, .top_k = 3, .seed = 9};
    batch.start(request, {1, 2, 3}, {4, 0});
    REQUIRE(decoder.starts.size() == 1);
    CHECK(decoder.starts[0].prompt == Tokens{1, 2, 3});
    CHECK(decoder.starts[0].choice == request.choice);
    CHECK(decoder.starts[0].max_tokens == 7);
    CHECK(decoder.starts[0].end_tokens == Tokens{4, 0});
}

TEST_CASE("a logit that is not finite names the sequences") {
    struct Failing : ScriptedDecoder {
        Failing() : ScriptedDecoder(2, {}) {}
        std::vector<SequenceAdvance> advance(int) override { throw NonFiniteError("the logit of token 3, in row 1"); }
    } decoder;
    ListCodec codec(kTexts);
    GenerationBatch batch(decoder, codec, [](const GenerationRequest&, std::string_view) {});
    batch.start(request_of("first", 9), {100}, {});
    batch.start(request_of("second", 9), {100}, {});
    CHECK_THROWS_AS(batch.step(1), NonFiniteError);
    CHECK_THROWS_WITH(batch.step(1), Catch::Contains("token 3, in row 1") && Catch::Contains("row 1: \"second\""));
}
