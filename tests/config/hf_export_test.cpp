// Which models Hugging Face's config.json has a model_type for: a LLaMA with all of attention's biases, and none for
// others.
#include <nlohmann/json.hpp>
#include "src/config/config.h"
#include "tests/catch.h"
#include "tests/config/cases.h"

using coda::model_section_from_hf;
using coda::test::lacking;
using nlohmann::json;

TEST_CASE("a LLaMA's attention_bias is of q, k, v and o, and is written as it was read") {
    json document = coda::test::small_document();
    json hf = to_hf_json(coda::parse_config(document, "small").model);
    hf["attention_bias"] = true;
    const json section = model_section_from_hf(hf, "f");
    CHECK(section["attention_bias"] == true);
    CHECK(section["attention_out_bias"] == true);
    document["model"] = section;
    const json written = to_hf_json(coda::parse_config(document, "small").model);
    CHECK(written["model_type"] == "llama");
    CHECK(written["attention_bias"] == true);
    CHECK_FALSE(written.contains("attention_out_bias"));
}

TEST_CASE("a model that transformers does not have is not written, and the message names the key") {
    json document = coda::test::small_document();
    const auto refusal_of = [&]() -> std::string {
        try {
            to_hf_json(coda::parse_config(document, "small").model);
        } catch (const coda::Error& error) {
            return error.what();
        }
        return "";
    };
    document["model"]["attention_out_bias"] = true;
    CHECK(lacking(refusal_of(), {"--export", "model.attention_out_bias", "without model.attention_bias"}) == "");
    document["model"]["attention_bias"] = true;
    document["model"]["sliding_window"] = 7;
    CHECK(lacking(refusal_of(), {"--export", "model.sliding_window is 7 with model.attention_out_bias"}) == "");
    document["model"]["mlp"] = "gelu_exact";
    CHECK(lacking(refusal_of(), {"--export", "model.mlp is \"gelu_exact\""}) == "");
    document["model"]["position_embeddings"] = "learned";
    CHECK(lacking(refusal_of(), {"--export", "model.position_embeddings is \"learned\""}) == "");
}
