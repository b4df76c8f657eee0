// Hugging Face's config.json, read and written. The documents are shaped as transformers 4 and 5 write them.
#include "src/config/config.h"

#include <nlohmann/json.hpp>
#include "tests/catch.h"
#include "tests/config/cases.h"
#include "tests/tiny_model.h"

using coda::Error;
using coda::model_section_from_hf;
using coda::test::lacking;
using nlohmann::json;

namespace {

json llama3_scaling() {
    return {{"rope_type", "llama3"},
            {"factor", 32.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}};
}

// As transformers 4 writes Llama 3.2 1B.
json llama32() {
    json hf = json::parse(R"({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 128256
    })");
    hf["rope_scaling"] = llama3_scaling();
    return hf;
}

// As transformers 5 writes it: all rotary parameters in one object, dtype without "torch_".
json llama32_v5() {
    json hf = llama32();
    hf["rope_parameters"] = llama3_scaling();
    hf["rope_parameters"]["rope_theta"] = 500000.0;
    hf["dtype"] = hf["torch_dtype"];
    hf["pad_token_id"] = nullptr;
    for (const char* key : {"rope_scaling", "rope_theta", "torch_dtype"}) hf.erase(key);
    return hf;
}

// As transformers 4 writes Qwen2.5 1.5B.
json qwen2() {
    return json::parse(R"({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02,
        "intermediate_size": 8960, "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "qwen2",
        "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
        "vocab_size": 151936
    })");
}

// As transformers 4 writes Qwen3 0.6B: heads of 128, of which 16 are wider than the stream.
json qwen3() {
    return json::parse(R"({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
        "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
        "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936
    })");
}

// As Llama 2 7B: no GQA, no head_dim, no rope_theta.
json llama2() {
    return json::parse(R"({
        "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
        "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": null,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false,
        "torch_dtype": "float16", "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000
    })");
}

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
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192},
        "attention_bias": false, "qk_norm": false, "tie_word_embeddings": true, "max_position_embeddings": 131072,
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

TEST_CASE("a mistral without a window is a LLaMA, with its own defaults") {
    json hf = llama2();
    hf["model_type"] = "mistral";
    hf["architectures"] = {"MistralForCausalLM"};
    hf["sliding_window"] = nullptr;
    json expected = model_section_from_hf(llama2(), "f");
    CHECK(model_section_from_hf(hf, "f") == expected);
    hf["sliding_window"] = 4096;
    CHECK(model_section_from_hf(hf, "f") == expected);
    hf["sliding_window"] = 4095;
    CHECK(lacking(refusal(hf), {"DIR/config.json: sliding_window is 4095", "max_position_embeddings 4096"}) == "");
    hf.erase("sliding_window");
    CHECK(refusal(hf) == "");
    hf.erase("max_position_embeddings");
    CHECK(lacking(refusal(hf), {"sliding_window is 4096 (the default", "max_position_embeddings 131072"}) == "");
    hf["sliding_window"] = nullptr;
    hf.erase("num_key_value_heads");
    CHECK(model_section_from_hf(hf, "f")["num_key_value_heads"] == 8);
    CHECK(model_section_from_hf(hf, "f")["max_position_embeddings"] == 131072);
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
    for (const auto& [key, value] : {std::pair<const char*, json>("use_sliding_window", true),
                                     {"attention_bias", false},
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
    for (const auto& [key, value] :
         {std::pair<const char*, json>("use_sliding_window", true),
          {"attention_bias", true},
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
        {"hidden_act", "gelu"},      {"attention_bias", true},
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
    for (const char* type : {"yarn", "dynamic"}) {
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
    for (const json& hf : {llama32(), llama2(), qwen2(), qwen3()}) {
        json document = coda::test::small_document();
        document["model"] = model_section_from_hf(hf, "f");
        const coda::Config config = coda::parse_config(document, "small");
        CHECK(model_section_from_hf(to_hf_json(config.model), "f") == to_json(config)["model"]);
    }
}
