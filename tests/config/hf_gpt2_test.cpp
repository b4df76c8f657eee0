// config.json of a gpt2, read and written.
#include <nlohmann/json.hpp>
#include "src/config/config.h"
#include "tests/catch.h"
#include "tests/config/cases.h"

using coda::Error;
using coda::model_section_from_hf;
using coda::test::lacking;
using nlohmann::json;

namespace {

/// As openai-community/gpt2 has it, without its settings of tasks.
json gpt2() {
    return json::parse(R"({
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_positions": 1024, "resid_pdrop": 0.1, "vocab_size": 50257
    })");
}

std::string refusal_with(const char* key, const json& value) {
    json hf = gpt2();
    hf[key] = value;
    return coda::test::message_of<Error>([&] { model_section_from_hf(hf, "DIR/config.json"); });
}

coda::Config config_of(const json& section) {
    json document = coda::test::small_document();
    document["model"] = section;
    return coda::parse_config(document, "small");
}

}  // namespace

TEST_CASE("a gpt2 is a model with LayerNorm, learned positions, GELU and biases everywhere") {
    const json expected = json::parse(R"({
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "num_key_value_heads": 12, "head_dim": 64, "vocab_size": 50257, "norm": "layernorm", "rms_norm_eps": 1e-05,
        "position_embeddings": "learned", "max_position_embeddings": 1024, "attention_bias": true,
        "attention_out_bias": true, "qk_norm": false, "sliding_window": 0, "mlp": "gelu_tanh", "mlp_bias": true,
        "tie_word_embeddings": true, "initializer_range": 0.02, "bos_token_id": 50256, "eos_token_id": 50256
    })");
    CHECK(model_section_from_hf(gpt2(), "f") == expected);
}

TEST_CASE("a gpt2's file takes the defaults of transformers") {
    json bare = gpt2();
    for (const char* key : {"activation_function", "layer_norm_epsilon", "n_positions", "n_ctx", "attn_pdrop"})
        bare.erase(key);
    CHECK(model_section_from_hf(bare, "f") == model_section_from_hf(gpt2(), "f"));
    bare["n_inner"] = nullptr;
    CHECK(model_section_from_hf(bare, "f")["intermediate_size"] == 3072);
    bare["n_inner"] = 2000;
    bare["tie_word_embeddings"] = false;
    bare["n_positions"] = 77;
    bare["layer_norm_epsilon"] = 1e-6;
    const json section = model_section_from_hf(bare, "f");
    CHECK(section["intermediate_size"] == 2000);
    CHECK(section["tie_word_embeddings"] == false);
    CHECK(section["max_position_embeddings"] == 77);
    CHECK(section["rms_norm_eps"] == 1e-6);
    // What a LLaMA's file may say has no meaning in a gpt2's.
    bare["num_key_value_heads"] = 3;
    bare["head_dim"] = 7;
    bare["rope_theta"] = 2.0;
    CHECK(model_section_from_hf(bare, "f") == section);
}

TEST_CASE("the activation functions of a gpt2") {
    for (const auto& [name, mlp] :
         {std::pair("gelu_new", "gelu_tanh"), {"gelu_pytorch_tanh", "gelu_tanh"}, {"gelu", "gelu_exact"}}) {
        json hf = gpt2();
        hf["activation_function"] = name;
        CHECK(model_section_from_hf(hf, "f")["mlp"] == mlp);
    }
    CHECK(lacking(refusal_with("activation_function", "relu"),
                  {"DIR/config.json: activation_function is the string \"relu\"; only \"gelu_new\", "
                   "\"gelu_pytorch_tanh\", \"gelu\" are supported"}) == "");
}

TEST_CASE("a gpt2 with other mathematics is refused by file and key, as the file has it") {
    for (const auto& [key, value] : {std::pair<const char*, json>("scale_attn_weights", false),
                                     {"scale_attn_by_inverse_layer_idx", true},
                                     {"add_cross_attention", true},
                                     {"n_embd", "wide"},
                                     {"n_embd", 770},
                                     {"n_head", 0},
                                     {"n_inner", -1},
                                     {"n_positions", 0},
                                     {"layer_norm_epsilon", "1e-5"},
                                     {"architectures", {"GPT2ForSequenceClassification"}},
                                     {"quantization_config", {{"quant_method", "bitsandbytes"}}}}) {
        INFO(key << " " << value);
        CHECK(lacking(refusal_with(key, value), {"DIR/config.json: ", key}) == "");
    }
    for (const auto& [key, value] : {std::pair<const char*, json>("reorder_and_upcast_attn", true),
                                     {"scale_attn_weights", true},
                                     {"add_cross_attention", false},
                                     {"resid_pdrop", 0.5}}) {
        INFO(key << " " << value);
        CHECK(refusal_with(key, value) == "");
    }
    json without = gpt2();
    without.erase("n_layer");
    CHECK(lacking(coda::test::message_of<Error>([&] { model_section_from_hf(without, "DIR/config.json"); }),
                  {"DIR/config.json: missing key n_layer"}) == "");
}

TEST_CASE("a gpt2 is written as it was read, with dropout off") {
    json expected = gpt2();
    expected["n_inner"] = 3072;
    for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) expected[key] = 0.0;
    expected["tie_word_embeddings"] = true;
    expected["torch_dtype"] = "float32";
    expected["use_cache"] = true;
    expected["scale_attn_weights"] = true;
    expected["scale_attn_by_inverse_layer_idx"] = expected["add_cross_attention"] = false;
    CHECK(to_hf_json(config_of(model_section_from_hf(gpt2(), "f")).model) == expected);
    for (const char* activation : {"gelu_new", "gelu"}) {
        json hf = gpt2();
        hf["activation_function"] = activation;
        hf["n_inner"] = 1000;
        hf["tie_word_embeddings"] = false;
        const coda::Config config = config_of(model_section_from_hf(hf, "f"));
        const json written = to_hf_json(config.model);
        CHECK(written["activation_function"] == activation);
        CHECK(to_json(config_of(model_section_from_hf(written, "f"))) == to_json(config));
    }
}

TEST_CASE("a model with LayerNorm that is no gpt2 is not written, and the message names the key") {
    const json section = model_section_from_hf(gpt2(), "f");
    for (const auto& [key, value] : {std::pair<const char*, json>("position_embeddings", "rope"),
                                     {"attention_bias", false},
                                     {"attention_out_bias", false},
                                     {"mlp_bias", false},
                                     {"num_key_value_heads", 4},
                                     {"head_dim", 128},
                                     {"sliding_window", 7}}) {
        INFO(key << " " << value);
        json changed = section;
        changed[key] = value;
        const coda::ModelConfig model = config_of(changed).model;
        const std::string message = coda::test::message_of<Error>([&] { to_hf_json(model); });
        CHECK(lacking(message, {"--export: model.", key, "LayerNorm", "which no model_type has"}) == "");
        CHECK(hf_refusals(model).size() == 1);
    }
}
