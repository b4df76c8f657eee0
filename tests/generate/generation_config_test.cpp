#include "src/generate/generation_config.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "tests/catch.h"

using namespace coda;
using Catch::Contains;
using nlohmann::json;

namespace {

GenerationConfig parse(const json& document) { return parse_generation_config(document, "generation_config.json"); }

}  // namespace

TEST_CASE("generation_config.json gives end tokens and how tokens are chosen") {
    const GenerationConfig llama = parse(json::parse(
        R"({"bos_token_id": 128000, "do_sample": true, "eos_token_id": [128001, 128008, 128009], "temperature": 0.6,)"
        R"( "top_p": 0.9, "transformers_version": "4.42.3"})"));
    CHECK(llama.end_tokens == std::vector<std::int32_t>{128001, 128008, 128009});
    CHECK(llama.over({.top_k = 7, .seed = 5}) ==
          ChoiceOptions{.temperature = 0.6F, .top_k = 7, .top_p = 0.9F, .seed = 5});
    CHECK(llama.ignored.empty());

    const GenerationConfig greedy = parse({{"do_sample", false}, {"temperature", 0.6}, {"eos_token_id", 2}});
    CHECK(greedy.over({}).temperature == 0);
    CHECK(greedy.end_tokens == std::vector<std::int32_t>{2});
    CHECK(parse(json::object()).over({.temperature = 0.25}).temperature == 0.25F);  // without do_sample nothing is said
    const GenerationConfig rest =
        parse({{"top_k", 20}, {"min_p", 0.1}, {"repetition_penalty", 1.1}, {"stop_strings", {"a", "b"}}});
    CHECK(rest.over({}) == ChoiceOptions{.top_k = 20, .min_p = 0.1F, .repetition_penalty = 1.1F});
    CHECK(rest.stop == std::vector<std::string>{"a", "b"});
    CHECK(parse({{"stop_strings", "x"}, {"eos_token_id", nullptr}}).stop == std::vector<std::string>{"x"});
}

TEST_CASE("what would change the text and is not known is named") {
    CHECK(parse({{"num_beams", 4}, {"no_repeat_ngram_size", 3}, {"penalty_alpha", 0.6}, {"typical_p", 0.9}}).ignored ==
          std::vector<std::string>{"no_repeat_ngram_size", "num_beams", "penalty_alpha", "typical_p"});
    CHECK(parse({{"num_beams", 1},
                 {"no_repeat_ngram_size", 0},
                 {"penalty_alpha", nullptr},
                 {"typical_p", 1.0},
                 {"suppress_tokens", json::array()},
                 {"max_length", 8192},
                 {"renormalize_logits", false}})
              .ignored.empty());
    CHECK(parse({{"suppress_tokens", {1}}, {"min_length", 5}}).ignored ==
          std::vector<std::string>{"min_length", "suppress_tokens"});
}

TEST_CASE("a bad generation_config.json is refused by key") {
    const auto refused = [](const json& document, const std::string& says) {
        INFO(document);
        CHECK_THROWS_WITH(parse(document), Contains("generation_config.json: ") && Contains(says));
    };
    refused(json::array(), "expected a JSON object");
    refused({{"eos_token_id", "x"}}, "eos_token_id: expected a token id or a list of them, found \"x\"");
    refused({{"eos_token_id", {1, -1}}}, "eos_token_id");
    refused({{"eos_token_id", 4294967296}}, "eos_token_id");
    refused({{"temperature", "hot"}}, "temperature: expected a number");
    refused({{"temperature", -0.5}}, "temperature: is -0.5");
    refused({{"top_p", 1.5}}, "top_p: is 1.5");
    refused({{"top_k", -1}}, "top_k: expected an integer");
    refused({{"do_sample", 1}}, "do_sample: expected true or false");
    refused({{"stop_strings", {1}}}, "stop_strings");
    refused({{"repetition_penalty", 0}}, "repetition_penalty: is 0");
}
