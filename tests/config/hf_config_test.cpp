// Hugging Face's config.json, read and written.
#include "src/config/config.h"

#include <nlohmann/json.hpp>
#include "tests/catch.h"
#include "tests/config/cases.h"
#include "tests/config/hf_documents.h"
#include "tests/tiny_model.h"

using coda::Error;
using coda::model_section_from_hf;
using coda::test::lacking;
using coda::test::llama2;
using coda::test::llama32;
using coda::test::llama32_v5;
using coda::test::llama3_scaling;
using coda::test::qwen2;
using coda::test::qwen3;
using nlohmann::json;

namespace {

std::string refusal(const json& hf) {
    return coda::test::message_of<Error>([&] { model_section_from_hf(hf, "DIR/config.json"); });
}

std::string refusal_with(const char* key, const json& value) {
    json hf = llama32();
    hf[key] = value;
    return refusal(hf);
}

}  // namespace

TEST_CASE("a Llama 3.2 config.json, of transformers 4 and 5") {
    const json expected = json::parse(R"({
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "norm": "rmsnorm",
        "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192},
        "attention_bias": false, "attention_out_bias": false, "mlp": "swiglu", "mlp_bias": false, "qk_norm": false,
        "sliding_window": 0, "position_embeddings": "rope", "tie_word_embeddings": true,
        "max_position_embeddings": 131072,
        "initializer_range": 0.02, "bos_token_id": 128000, "eos_token_id": 128001
    })");
    CHECK(model_section_from_hf(llama32(), "f") == expected);
    CHECK(model_section_from_hf(llama32_v5(), "f") == expected);
}

TEST_CASE("a Llama 2 config.json takes the defaults of transformers, not ours") {
    const json section = model_section_from_hf(llama2(), "f");
    CHECK(section["rope_theta"] == 10000.0);
    CHECK(section["rope_scaling"].is_null());
    CHECK(section["num_key_value_heads"] == 32);
    CHECK(section["head_dim"] == 128);
    json without_eps = llama2();
    without_eps.erase("rms_norm_eps");
    CHECK(model_section_from_hf(without_eps, "f")["rms_norm_eps"] == 1e-6);
}

TEST_CASE("variants of the rotary parameters") {
    json legacy = llama32();
    legacy["rope_scaling"].erase("rope_type");
    legacy["rope_scaling"]["type"] = "llama3";
    CHECK(model_section_from_hf(legacy, "f")["rope_scaling"] == llama3_scaling());

    json plain = llama32_v5();
    plain["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
    CHECK(model_section_from_hf(plain, "f")["rope_theta"] == 10000.0);
    CHECK(model_section_from_hf(plain, "f")["rope_scaling"].is_null());

    json both = llama32_v5();
    both["rope_scaling"] = llama3_scaling();
    both["rope_theta"] = 500000.0;
    CHECK(model_section_from_hf(both, "f")["rope_scaling"] == llama3_scaling());
    both["rope_scaling"]["factor"] = 8.0;
    CHECK(lacking(refusal(both), {"DIR/config.json", "rope_scaling and rope_parameters disagree"}) == "");
    both["rope_scaling"]["factor"] = 32.0;
    both["rope_theta"] = 10000.0;
    CHECK(lacking(refusal(both), {"rope_theta 10000.0", "500000.0"}) == "");

    json partial = llama32_v5();
    partial["rope_parameters"]["partial_rotary_factor"] = 1.0;
    CHECK(refusal(partial) == "");
    partial["rope_parameters"]["partial_rotary_factor"] = 0.5;
    CHECK(lacking(refusal(partial), {"rope_parameters.partial_rotary_factor"}) == "");
}

TEST_CASE("an instruct model's list of end tokens is kept") {
    json hf = llama32();
    hf["eos_token_id"] = {128001, 128008, 128009};
    json document = coda::test::small_document();
    document["model"] = model_section_from_hf(hf, "f");
    const coda::Config config = coda::parse_config(document, "small");
    CHECK(config.model.eos_token_id == std::vector<std::int64_t>{128001, 128008, 128009});
    CHECK(to_hf_json(config.model)["eos_token_id"] == hf["eos_token_id"]);
}

TEST_CASE("linear RoPE scaling is read in each spelling and written as transformers 4 and 5 read it") {
    json legacy = llama2();
    legacy["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
    json of_5 = llama32_v5();
    of_5["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "linear"}, {"factor", 4.0}};
    const json linear = {{"rope_type", "linear"}, {"factor", 4.0}};
    for (const json& hf : {legacy, of_5}) {
        json document = coda::test::small_document();
        document["model"] = model_section_from_hf(hf, "f");
        CHECK(document["model"]["rope_scaling"] == linear);
        const json written = to_hf_json(coda::parse_config(document, "small").model);
        CHECK(written["rope_scaling"] == linear);
        CHECK(written["rope_theta"] == 10000.0);
        CHECK_FALSE(written.contains("rope_parameters"));
    }
}

TEST_CASE("yarn is read with the defaults of transformers, and written as it was read") {
    json legacy = qwen2();
    legacy["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
    const json bare = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
    json of_5 = qwen2();
    of_5["rope_parameters"] = bare;
    of_5["rope_parameters"]["rope_theta"] = 1000000.0;
    of_5["rope_parameters"]["attention_factor"] = nullptr;
    json without_factor = qwen2();  // it is 131072 / 32768
    without_factor["rope_scaling"] = {{"rope_type", "yarn"}, {"original_max_position_embeddings", 32768}};
    json filled = bare;
    filled["beta_fast"] = 32.0;
    filled["beta_slow"] = 1.0;
    filled["truncate"] = true;
    for (const json& hf : {legacy, of_5, without_factor}) {
        json document = coda::test::small_document();
        document["model"] = model_section_from_hf(hf, "f");
        CHECK(document["model"]["rope_scaling"] == bare);
        CHECK(to_hf_json(coda::parse_config(document, "small").model)["rope_scaling"] == filled);
    }
    json own = qwen2();
    own["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 40.0}};
    CHECK(model_section_from_hf(own, "f")["rope_scaling"]["original_max_position_embeddings"] == 131072);
    json full = filled;
    for (const char* key : {"mscale", "mscale_all_dim", "attention_factor"}) full[key] = 0.75;
    full["truncate"] = false;
    own["rope_scaling"] = full;
    json document = coda::test::small_document();
    document["model"] = model_section_from_hf(own, "f");
    CHECK(to_hf_json(coda::parse_config(document, "small").model)["rope_scaling"] == full);
    own["rope_scaling"]["beta_medium"] = 3;
    CHECK(lacking(refusal(own), {"DIR/config.json: ", "rope_scaling.beta_medium"}) == "");
}

TEST_CASE("a mistral is a LLaMA with a window, with its own defaults") {
    json hf = llama2();
    hf["model_type"] = "mistral";
    hf["architectures"] = {"MistralForCausalLM"};
    hf["sliding_window"] = nullptr;  // of versions 0.2 and 0.3
    json expected = model_section_from_hf(llama2(), "f");
    CHECK(model_section_from_hf(hf, "f") == expected);
    hf["sliding_window"] = 1024;
    expected["sliding_window"] = 1024;
    CHECK(model_section_from_hf(hf, "f") == expected);
    hf["head_dim"] = 96;
    CHECK(model_section_from_hf(hf, "f")["head_dim"] == 96);
    hf["head_dim"] = nullptr;
    CHECK(model_section_from_hf(hf, "f")["head_dim"] == 128);
    hf.erase("sliding_window");
    CHECK(model_section_from_hf(hf, "f")["sliding_window"] == 4096);
    hf.erase("num_key_value_heads");
    hf.erase("max_position_embeddings");
    CHECK(model_section_from_hf(hf, "f")["num_key_value_heads"] == 8);
    CHECK(model_section_from_hf(hf, "f")["max_position_embeddings"] == 131072);
    for (const json& wrong : {json(-1), json(0.5), json("all")}) {
        hf["sliding_window"] = wrong;
        CHECK(lacking(refusal(hf), {"DIR/config.json: sliding_window"}) == "");
    }
}

TEST_CASE("a model with a window is written as the mistral or qwen2 that transformers gives it to") {
    json document = coda::test::small_document();
    document["model"]["sliding_window"] = 7;
    const json mistral = to_hf_json(coda::parse_config(document, "small").model);
    CHECK(mistral["model_type"] == "mistral");
    CHECK(mistral["architectures"] == json::array({"MistralForCausalLM"}));
    CHECK(mistral["sliding_window"] == 7);
    CHECK_FALSE(mistral.contains("use_sliding_window"));
    document["model"]["attention_bias"] = true;
    const json qwen = to_hf_json(coda::parse_config(document, "small").model);
    CHECK(qwen["model_type"] == "qwen2");
    CHECK(qwen["use_sliding_window"] == true);
    CHECK(qwen["max_window_layers"] == 0);
    CHECK(model_section_from_hf(qwen, "f")["sliding_window"] == 7);
    document["model"]["sliding_window"] = 0;
    CHECK(to_hf_json(coda::parse_config(document, "small").model)["use_sliding_window"] == false);
}

TEST_CASE("the windows of a qwen2 are taken where all of its layers have them, or none") {
    json hf = qwen2();
    hf["sliding_window"] = 4096;
    const auto window = [&] { return model_section_from_hf(hf, "f")["sliding_window"]; };
    CHECK(window() == 0);
    hf["use_sliding_window"] = true;
    CHECK(window() == 0);  // max_window_layers is the number of layers
    hf["max_window_layers"] = 0;
    CHECK(window() == 4096);
    hf["max_window_layers"] = 21;
    CHECK(lacking(refusal(hf), {"DIR/config.json: max_window_layers is 21 of 28", "use_sliding_window"}) == "");
    hf["layer_types"] = json::array({"sliding_attention", "sliding_attention"});
    CHECK(window() == 4096);
    hf["layer_types"] = json::array({"full_attention", "full_attention"});
    CHECK(window() == 0);
    hf["layer_types"] = json::array({"full_attention", "sliding_attention"});
    CHECK(lacking(refusal(hf), {"DIR/config.json: layer_types", "some of the layers"}) == "");
}

TEST_CASE("a qwen2 is a LLaMA with biases of q, k and v, and its own defaults") {
    const json section = model_section_from_hf(qwen2(), "f");
    CHECK(section["attention_bias"] == true);
    CHECK(section["head_dim"] == 128);
    CHECK(section["num_key_value_heads"] == 2);
    CHECK(section["rope_theta"] == 1000000.0);
    json bare = qwen2();
    for (const char* key : {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "use_sliding_window",
                            "tie_word_embeddings", "rope_theta"})
        bare.erase(key);
    bare["num_attention_heads"] = 32;
    const json defaults = model_section_from_hf(bare, "f");
    CHECK(defaults["num_key_value_heads"] == 32);
    CHECK(defaults["max_position_embeddings"] == 32768);
    CHECK(defaults["rms_norm_eps"] == 1e-6);
    CHECK(defaults["tie_word_embeddings"] == false);
    CHECK(defaults["rope_theta"] == 10000.0);
    for (const auto& [key, value] : {std::pair<const char*, json>("attention_bias", false),
                                     {"hidden_act", "gelu"},
                                     {"architectures", {"LlamaForCausalLM"}}}) {
        json hf = qwen2();
        hf[key] = value;
        CHECK(lacking(refusal(hf), {"DIR/config.json: ", key}) == "");
    }
}

TEST_CASE("a qwen3 is a LLaMA with norms of q and k, and its own defaults") {
    const json section = model_section_from_hf(qwen3(), "f");
    CHECK(section["qk_norm"] == true);
    CHECK(section["attention_bias"] == false);
    CHECK(section["head_dim"] == 128);
    json bare = qwen3();
    for (const char* key :
         {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "use_sliding_window", "tie_word_embeddings",
          "rope_theta", "head_dim", "attention_bias", "sliding_window", "rope_scaling"})
        bare.erase(key);
    bare["num_attention_heads"] = 32;
    const json defaults = model_section_from_hf(bare, "f");
    CHECK(defaults["num_key_value_heads"] == 32);
    CHECK(defaults["head_dim"] == 128);
    CHECK(defaults["max_position_embeddings"] == 32768);
    CHECK(defaults["rms_norm_eps"] == 1e-6);
    CHECK(defaults["tie_word_embeddings"] == false);
    CHECK(defaults["rope_theta"] == 10000.0);
    json of_5 = qwen3();
    of_5["layer_types"] = std::vector<std::string>(28, "full_attention");
    CHECK(model_section_from_hf(of_5, "f") == section);
    of_5["layer_types"][27] = "sliding_attention";
    CHECK(lacking(refusal(of_5), {"DIR/config.json: layer_types has the string \"sliding_attention\""}) == "");
    json windowed = qwen3();
    windowed["use_sliding_window"] = true;
    windowed["sliding_window"] = 512;
    windowed["max_window_layers"] = 0;
    CHECK(model_section_from_hf(windowed, "f").at("sliding_window") == 512);
    windowed["max_window_layers"] = 3;
    CHECK(lacking(refusal(windowed), {"DIR/config.json: max_window_layers is", "some of the layers"}) == "");
    for (const auto& [key, value] :
         {std::pair<const char*, json>("attention_bias", true),
          {"hidden_act", "gelu"},
          {"architectures", {"Qwen3MoeForCausalLM"}},
          {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}}}) {
        json hf = qwen3();
        hf[key] = value;
        CHECK(lacking(refusal(hf), {"DIR/config.json: ", key}) == "");
    }
}

TEST_CASE("a model with norms of q and k is written as the qwen3 that transformers gives them to") {
    json document = coda::test::small_document();
    document["model"]["qk_norm"] = true;
    const json hf = to_hf_json(coda::parse_config(document, "small").model);
    CHECK(hf["model_type"] == "qwen3");
    CHECK(hf["architectures"] == json::array({"Qwen3ForCausalLM"}));
    CHECK(hf["attention_bias"] == false);
    CHECK_FALSE(hf.contains("qk_norm"));
}

TEST_CASE("a model with biases is written as the qwen2 that transformers gives them to") {
    json document = coda::test::small_document();
    document["model"]["attention_bias"] = true;
    const json hf = to_hf_json(coda::parse_config(document, "small").model);
    CHECK(hf["model_type"] == "qwen2");
    CHECK(hf["architectures"] == json::array({"Qwen2ForCausalLM"}));
}

TEST_CASE("other models are refused with what they have that a LLaMA has not") {
    for (const auto& [type, why] : {std::pair("smollm3", "layers without rotary embedding"),
                                    {"granite", "multipliers"},
                                    {"qwen2_vl", "a part for images"},
                                    {"qwen3_next", "layers of another kind"},
                                    {"qwen3_moe", "experts"},
                                    {"olmo2", "norms after its blocks"},
                                    {"phi3", "as one matrix each"},
                                    {"gemma3_text", "1 + weight"},
                                    {"cohere2", "LayerNorm"},
                                    {"gpt_neox", "partial rotary"},
                                    {"gptj", "than gpt2"},
                                    {"mamba", "only \"llama\""}}) {
        INFO(type);
        CHECK(lacking(refusal_with("model_type", type), {"DIR/config.json: model_type is", type, why}) == "");
    }
    CHECK(lacking(refusal_with("quantization_config", {{"quant_method", "bitsandbytes"}, {"bits", 4}}),
                  {"the weights are quantized (bitsandbytes)", "GPTQ"}) == "");
    CHECK(lacking(refusal_with("quantization_config", {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 64}}),
                  {"quantization_config.group_size is 64"}) == "");
}

TEST_CASE("what says nothing about the function is left to the run's config when absent") {
    json hf = llama32();
    for (const char* key : {"bos_token_id", "eos_token_id", "initializer_range"}) hf.erase(key);
    const json section = model_section_from_hf(hf, "f");
    for (const char* key : {"bos_token_id", "eos_token_id", "initializer_range"}) CHECK_FALSE(section.contains(key));
}

TEST_CASE("models that this program cannot run are refused by file and key") {
    struct Case {
        const char* key;
        json value;
    };
    const Case cases[] = {
        {"model_type", "mixtral"},   {"model_type", nullptr},
        {"hidden_act", "gelu"},      {"attention_bias", "qkv"},
        {"mlp_bias", true},          {"attention_dropout", 0.1},
        {"hidden_size", "wide"},     {"quantization_config", {{"bits", 4}}},
        {"num_hidden_layers", -1},   {"architectures", {"LlamaForSequenceClassification"}},
        {"rms_norm_eps", "1e-5"},    {"partial_rotary_factor", 0.5},
        {"rope_scaling", "llama3"},  {"tie_word_embeddings", 1},
        {"eos_token_id", "the end"},
    };
    for (const Case& each : cases) {
        INFO(each.key << " " << each.value);
        CHECK(lacking(refusal_with(each.key, each.value), {"DIR/config.json: ", each.key}) == "");
    }
    for (const char* type : {"longrope", "dynamic"}) {
        CHECK(lacking(refusal_with("rope_scaling", {{"type", type}, {"factor", 2.0}}),
                      {"DIR/config.json", "rope_scaling.rope_type is the string", type}) == "");
    }
    CHECK(lacking(refusal_with("rope_scaling", {{"rope_type", "llama3"}, {"factor", 2.0}}),
                  {"DIR/config.json", "missing key", "rope_scaling.low_freq_factor"}) == "");
    CHECK(lacking(refusal_with("head_dim", 0), {"head_dim: expected an integer in [2,"}) == "");
    CHECK(lacking(refusal(json::array()), {"DIR/config.json: expected an object"}) == "");

    json indivisible = llama2();
    indivisible["hidden_size"] = 4100;
    CHECK(lacking(refusal(indivisible), {"hidden_size 4100", "num_attention_heads 32"}) == "");
    for (const char* key :
         {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
        json hf = llama32();
        hf.erase(key);
        CHECK(lacking(refusal(hf), {"DIR/config.json: missing key ", key}) == "");
    }
}

TEST_CASE("to_hf_json is what transformers' LlamaForCausalLM loads") {
    coda::ModelConfig model = coda::test::llama1b_untied();
    model.max_position_embeddings = 131072;
    model.tie_word_embeddings = true;
    model.bos_token_id = 128000;
    model.eos_token_id = {128001};
    model.rope_scaling = coda::RopeScaling{.factor = 32};

    json expected = llama32();
    expected.erase("transformers_version");
    expected["torch_dtype"] = "float32";
    CHECK(to_hf_json(model) == expected);

    model.rope_scaling.reset();
    model.eos_token_id.clear();
    CHECK(to_hf_json(model)["rope_scaling"].is_null());
    CHECK(to_hf_json(model)["eos_token_id"].is_null());
}

TEST_CASE("an exported config.json imports as the same model section") {
    json windowed = llama2();
    windowed["model_type"] = "mistral";
    windowed["architectures"] = {"MistralForCausalLM"};
    windowed["sliding_window"] = 1024;
    for (const json& hf : {llama32(), llama2(), qwen2(), qwen3(), windowed}) {
        json document = coda::test::small_document();
        document["model"] = model_section_from_hf(hf, "f");
        const coda::Config config = coda::parse_config(document, "small");
        CHECK(model_section_from_hf(to_hf_json(config.model), "f") == to_json(config)["model"]);
    }
}
