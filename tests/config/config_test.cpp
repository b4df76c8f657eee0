// parse_config and to_json: defaults, derived values, and for every class of error what its message must say.
#include "src/config/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/config/retired.h"
#include "src/config/schema.h"
#include "tests/catch.h"
#include "tests/config/cases.h"

using coda::Config;
using coda::parse_config;
using coda::to_json;
using coda::UsageError;
using coda::test::changed;
using coda::test::lacking;
using coda::test::message_of;
using coda::test::small_document;
using nlohmann::json;

namespace {

std::string error_of(const json& document) {
    return message_of<UsageError>([&] { parse_config(document, "small"); });
}

}  // namespace

TEST_CASE("defaults and derived values") {
    const Config config = parse_config(small_document(), "small");
    CHECK(config.model.num_key_value_heads == 4);
    CHECK(config.model.head_dim == 16);
    CHECK(config.model.max_position_embeddings == 32);
    CHECK(config.model.rope_theta == 500000);
    CHECK_FALSE(config.model.rope_scaling);
    CHECK(config.data.train == std::vector<std::string>{"text.txt"});
    CHECK(config.data.val.empty());
    CHECK(config.data.shuffle);
    CHECK_FALSE(config.data.tokenizer);
    CHECK(config.training.seed == 1337);
    CHECK(config.training.recompute == coda::Recompute::none);
    CHECK(config.optimizer.learning_rate == 3e-4);
    CHECK(config.lr_schedule.type == coda::LrScheduleType::cosine);
    CHECK(config.output.directory == "runs/small");
    CHECK(config.device == coda::DeviceChoice::automatic);
}

TEST_CASE("every key is read into its own member and written back") {
    json every_key = json::parse(R"({
        "model": {"hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 300, "norm": "rmsnorm",
                  "rms_norm_eps": 1e-6,
                  "rope_theta": 10000.5, "tie_word_embeddings": true, "attention_bias": true, "qk_norm": false,
                   "sliding_window": 33,
                   "attention_out_bias": false, "mlp": "swiglu", "mlp_bias": false, "position_embeddings": "rope",
                  "max_position_embeddings": 4096,
                  "initializer_range": 0.015, "bos_token_id": 11, "eos_token_id": 12,
                  "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.5,
                                   "high_freq_factor": 4.5, "original_max_position_embeddings": 1024}},
        "data": {"train": ["a.bin", "b*.bin"], "val": ["c.bin"], "shuffle": false, "document_mask": true,
                 "tokenizer": "t/tokenizer.json"},
        "training": {"seq_len": 48, "micro_batch_size": 3, "grad_accumulation_steps": 5, "steps": 70,
                     "seed": 18446744073709551615, "max_grad_norm": 0.5, "skip_spikes": 6.5, "lm_head_chunks": 7,
                     "recompute": "swiglu"},
        "optimizer": {"learning_rate": 0.002, "beta1": 0.8, "beta2": 0.9, "eps": 1e-7, "weight_decay": 0.01,
                      "moments": "bf16"},
        "lr_schedule": {"type": "wsd", "warmup_steps": 6, "min_lr_ratio": 0.25, "decay_steps": 13},
        "validation": {"interval": 17, "batches": 19},
        "evaluation": {"files": ["d.bin", "e*.bin"], "interval": 31, "limit": 37},
        "samples": {"interval": 41, "prompts": ["Once", "a\nb"], "tokens": 43, "temperature": 0.75, "top_k": 47,
                    "top_p": 0.875, "min_p": 0.125, "repetition_penalty": 1.25, "seed": 53},
        "checkpoint": {"interval": 23, "keep": 29, "at_end": false, "background": false},
        "output": {"directory": "elsewhere"},
        "device": "cpu",
        "precision": {"bf16_first_layers": 1, "bf16_last_layers": 0, "count_interval": 61}
    })");
    std::size_t keys = 0;
    for (const auto& [name, value] : every_key.items()) {
        keys += value.is_object() && name != "precision" ? value.size() : 1;
    }
    REQUIRE(keys == coda::schema().size());

    const Config config = parse_config(every_key, "ignored");
    CHECK(to_json(config) == every_key);
    CHECK(config.model.rope_scaling->original_max_position_embeddings == 1024);
    CHECK(config.training.seed == 18446744073709551615u);
    CHECK(config.optimizer.beta2 == 0.9);
    CHECK(config.lr_schedule.decay_steps == 13);
    CHECK(config.device == coda::DeviceChoice::cpu);

    // What FP8 does not go with.
    every_key["precision"] = "bf16";
    for (const char* key : {"attention_out_bias", "mlp_bias"}) every_key["model"][key] = true;
    for (const char* mlp : {"gelu_tanh", "gelu_exact"}) {
        every_key["model"]["mlp"] = mlp;
        CHECK(to_json(parse_config(every_key, "ignored")) == every_key);
    }
    every_key["model"]["position_embeddings"] = "learned";
    CHECK(lacking(error_of(every_key), {"model.rope_scaling is given", "model.position_embeddings \"learned\""}) == "");
    every_key["model"]["rope_scaling"] = nullptr;
    CHECK(to_json(parse_config(every_key, "ignored")) == every_key);
}

TEST_CASE("a model has biases or norms of q and k") {
    json document = changed("/model/qk_norm", true);
    CHECK(parse_config(document, "c").model.qk_norm);
    CHECK(to_json(parse_config(document, "c"))["model"]["qk_norm"] == true);
    document["model"]["attention_bias"] = true;
    CHECK(lacking(error_of(document), {"model.qk_norm and model.attention_bias are both true"}) == "");
}

TEST_CASE("precision is a word or an object of what differs from fp8") {
    const auto precision_of = [](const json& value) {
        return parse_config(changed("/precision", value), "c").precision;
    };
    CHECK_FALSE(parse_config(small_document(), "c").precision.has_fp8);
    CHECK(precision_of("bf16") == coda::PrecisionConfig{});
    CHECK(precision_of("fp8") == coda::PrecisionConfig::fp8());
    CHECK(precision_of(json::object()) == coda::PrecisionConfig::fp8());
    const coda::PrecisionConfig some = precision_of({{"bf16_last_layers", 1}, {"count_interval", 5}});
    CHECK((some.has_fp8 && some.bf16_first_layers == 0 && some.bf16_last_layers == 1 && some.count_interval == 5));
    CHECK(to_json(parse_config(changed("/precision", "fp8"), "c")).at("precision").at("count_interval") == 100);

    const auto refusal = [](const json& value) { return error_of(changed("/precision", value)); };
    CHECK(lacking(refusal("fp4"), {"precision: expected \"bf16\", \"fp8\" or an object", "the string \"fp4\""}) == "");
    CHECK(lacking(refusal({{"bf16_frist_layers", 1}}),
                  {"unknown key precision.bf16_frist_layers", "precision.bf16_first_layers"}) == "");
    CHECK(lacking(refusal({{"bf16_first_layers", -1}}),
                  {"precision.bf16_first_layers: expected an integer in [0, 65536], found -1"}) == "");
    CHECK(lacking(refusal({{"count_interval", -1}}), {"precision.count_interval: expected an integer"}) == "");
    CHECK(lacking(refusal({{"bf16_last_layers", 1000}}), {"leave none of the", "layers in FP8"}) == "");
}

TEST_CASE("what FP8 operands do not go with is refused by name") {
    const auto refusal = [](const char* pointer, const json& value) {
        json document = changed("/precision", "fp8");
        document[json::json_pointer(pointer)] = value;
        return error_of(document);
    };
    CHECK(refusal("/training/recompute", "swiglu").empty());
    CHECK(lacking(refusal("/training/recompute", "mlp"), {"training.recompute \"mlp\"", "take \"swiglu\""}) == "");
    CHECK(lacking(refusal("/model/intermediate_size", 100), {"model.intermediate_size is 100", "multiples of 16"}) ==
          "");
    CHECK(lacking(refusal("/training/seq_len", 3), {"training.seq_len x training.micro_batch_size is"}) == "");
    CHECK(lacking(refusal("/model/mlp", "gelu_tanh"), {"model.mlp \"swiglu\"", "--precision bf16"}) == "");
    CHECK(lacking(refusal("/model/attention_out_bias", true), {"model.attention_out_bias is true", "bf16"}) == "");
    CHECK(lacking(error_of(changed("/model/mlp_bias", true)), {"model.mlp_bias is true", "take \"gelu_tanh\""}) == "");
}

TEST_CASE("a retired key is read with its fixed value, and refused with its reason otherwise") {
    json document = changed("/deterministic", true);
    document["precision"] = {{"qkv", "fp8"},           {"attn_out", "fp8"},      {"gate_up", "fp8"}, {"down", "fp8"},
                             {"head_forward", "bf16"}, {"qkv_gradient", "e5m2"}, {"margin", 0},      {"window", 16},
                             {"bf16_last_layers", 1},  {"bf16_first_layers", 0}};
    json without = small_document();
    without["precision"] = {{"bf16_last_layers", 1}};
    CHECK(to_json(parse_config(document, "c")) == to_json(parse_config(without, "c")));

    for (const coda::RetiredKey& key : coda::retired_keys()) {
        std::string pointer = "/" + key.path;
        std::replace(pointer.begin(), pointer.end(), '.', '/');
        for (const json& other : {json("other"), json(2), json(false), json(nullptr), json::object()}) {
            json edited = document;
            edited[json::json_pointer(pointer)] = other;
            INFO(key.path << ": " << other);
            CHECK(error_of(edited) == key.path + " is gone: " + key.reason + "; take it out");
            const Config recorded = coda::parse_recorded_config(edited, "c");
            CHECK(to_json(recorded) == to_json(parse_config(without, "c")));
        }
    }
    CHECK(lacking(error_of(changed("/precision/margin", 3)), {"precision.margin is gone: it is 0 in every run"}) == "");
}

TEST_CASE("what a recorded run has done is not checked again") {
    json document = changed("/precision", {{"gate_up", "bf16"}, {"down", "bf16"}});
    document["training"]["recompute"] = "mlp";
    document["model"]["intermediate_size"] = 100;
    const Config config = coda::parse_recorded_config(document, "c");
    CHECK((config.precision.has_fp8 && config.training.recompute == coda::Recompute::mlp));
    document["training"]["stpes"] = 3;
    CHECK_THROWS_AS(coda::parse_recorded_config(document, "c"), UsageError);
}

TEST_CASE("the resolved configuration resolves to itself") {
    const Config config = parse_config(small_document(), "small");
    CHECK(to_json(parse_config(to_json(config), "other name")) == to_json(config));
}

TEST_CASE("unknown keys name the nearest known one") {
    CHECK(error_of(changed("/training/stpes", 3)) ==
          "unknown key training.stpes; the nearest known key is training.steps");
    CHECK(error_of(changed("/training/learning_rate", 1e-3)) ==
          "unknown key training.learning_rate; the nearest known key is optimizer.learning_rate");
    CHECK(error_of(changed("/optimizer/lr", 1)) ==
          "unknown key optimizer.lr; the nearest known key is optimizer.learning_rate");
    CHECK(error_of(changed("/devise", "cpu")) == "unknown key devise; the nearest known key is device");
    CHECK(error_of(changed("/optimiser", json::object())) ==
          "unknown section optimiser; the nearest known one is optimizer");
    CHECK(error_of(changed("/training/ste\x1b[31mps\n", 3)) ==
          "unknown key training.ste\\x1b[31mps\\x0a; the nearest known key is training.steps");
}

TEST_CASE("missing keys are named, all at once") {
    json document = small_document();
    document["model"].erase("vocab_size");
    document["training"].erase("steps");
    const std::string error = error_of(document);
    CHECK(lacking(error, {"missing keys model.vocab_size, training.steps"}) == "");
    CHECK(lacking(error_of(json::object()), {"model.hidden_size", "data.train"}) == "");
}

TEST_CASE("wrong types and values out of range name key, expectation and found value") {
    struct Case {
        const char* pointer;
        json value;
        const char* expected;
        const char* found;
    };
    const Case cases[] = {
        {"/training/steps", "ten", "an integer in [0, 2147483647]", "the string \"ten\""},
        {"/training/steps", 1.5, "an integer in [0, 2147483647]", "1.5"},
        {"/training/steps", -1, "an integer in [0, 2147483647]", "-1"},
        {"/training/steps", 3000000000, "an integer in [0, 2147483647]", "3000000000"},
        {"/training/steps", nullptr, "an integer in [0, 2147483647]", "null"},
        {"/training/steps", true, "an integer in [0, 2147483647]", "true"},
        {"/training/seed", -1, "an integer >= 0", "-1"},
        {"/training/seed", 1e30, "an integer >= 0", "1e+30"},
        {"/training/recompute", "all", "one of \"none\", \"swiglu\", \"mlp\"", "the string \"all\""},
        {"/training/max_grad_norm", -1, "a number >= 0", "-1"},
        {"/training/skip_spikes", -0.5, "a number >= 0", "-0.5"},
        {"/training/lm_head_chunks", 0, "an integer in [1, 2147483647]", "0"},
        {"/model/hidden_size", json::array(), "an integer in [1, 1048576]", "an array"},
        {"/model/vocab_size", 0, "an integer in [1, 16777216]", "0"},
        {"/model/tie_word_embeddings", 1, "true or false", "1"},
        {"/model/rope_scaling", "llama3", "an object {\"rope_type\"", "the string \"llama3\""},
        {"/model/bos_token_id", "x", "an integer in [0, 2147483647] or null", "the string \"x\""},
        {"/data/train", 5, "a path, a glob or a list of them", "5"},
        {"/optimizer/learning_rate", 0, "a number > 0", "0"},
        {"/optimizer/beta1", 1.0, "a number in [0, 1)", "1.0"},
        {"/optimizer/beta2", -0.1, "a number in [0, 1)", "-0.1"},
        {"/optimizer/eps", 1e-46, "a number >= 1.2e-38", "1e-46"},
        {"/model/rms_norm_eps", 0, "a number >= 1.2e-38", "0"},
        {"/optimizer/moments", "fp16", "one of \"fp32\", \"bf16\"", "the string \"fp16\""},
        {"/lr_schedule/type", "step", "one of \"cosine\", \"linear\", \"constant\", \"wsd\"", "the string \"step\""},
        {"/lr_schedule/min_lr_ratio", 1.1, "a number in [0, 1]", "1.1"},
        {"/checkpoint/keep", 0, "an integer in [1, 2147483647]", "0"},
        {"/output/directory", "", "a non-empty string in UTF-8", "the string \"\""},
        {"/output/directory", "\xff", "a non-empty string in UTF-8", "the string"},
        {"/output/directory", std::string("run\0x", 5), "a non-empty string in UTF-8 without NUL",
         "the string \"run\\u0000x\""},
        {"/data/tokenizer", std::string("\0", 1), "a non-empty string in UTF-8 without NUL or null",
         "the string \"\\u0000\""},
        {"/device", "gpu", "one of \"auto\", \"cuda\", \"cpu\"", "the string \"gpu\""},
        {"/training", 5, "an object", "5"},
    };
    for (const Case& each : cases) {
        std::string key = std::string(each.pointer).substr(1);
        std::replace(key.begin(), key.end(), '/', '.');
        INFO(key);
        const std::string error = error_of(changed(each.pointer, each.value));
        CHECK(error.rfind(key + ": expected ", 0) == 0);
        CHECK(lacking(error, {std::string(": expected ") + each.expected, std::string(", found ") + each.found}) == "");
    }
    CHECK(lacking(error_of(json::array()), {"expected an object"}) == "");
    CHECK(lacking(error_of(changed("/data/train", {"a", 3})), {"data.train[1]: expected a non-empty"}) == "");
    CHECK(lacking(error_of(changed("/data/train", json::array())), {"data.train: the list is empty"}) == "");
}

TEST_CASE("a float without a fraction is an integer, a long string is shortened in errors") {
    CHECK(parse_config(changed("/training/steps", 1e3), "small").training.steps == 1000);
    CHECK(error_of(changed("/device", std::string(10000, 'x'))).size() < 200);
}

TEST_CASE("rope_scaling is complete, of a known type and consistent") {
    const json good = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
    CHECK(error_of(changed("/model/rope_scaling", good)).empty());
    const auto error_with = [&](const char* name, const json& value) {
        json scaling = good;
        scaling[name] = value;
        if (value.is_null()) scaling.erase(name);
        return error_of(changed("/model/rope_scaling", scaling));
    };
    CHECK(lacking(error_with("rope_type", "dynamic"),
                  {"model.rope_scaling.rope_type", "found the string \"dynamic\""}) == "");
    CHECK(lacking(error_with("rope_type", nullptr), {"missing key model.rope_scaling.rope_type"}) == "");
    CHECK(lacking(error_with("factor", nullptr), {"missing key model.rope_scaling.factor"}) == "");
    CHECK(lacking(error_with("factor", 0.5), {"model.rope_scaling.factor: expected a number >= 1"}) == "");
    CHECK(lacking(error_with("high_freq_factor", 1.0), {"expected more than low_freq_factor 1"}) == "");
    CHECK(lacking(error_with("low_freq_facor", 1.0),
                  {"unknown key model.rope_scaling.low_freq_facor; the nearest known key is "
                   "model.rope_scaling.low_freq_factor"}) == "");
    CHECK(error_of(changed("/model/rope_scaling", {{"rope_type", "linear"}, {"factor", 2.5}})).empty());
    const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
    CHECK(error_of(changed("/model/rope_scaling", yarn)).empty());
    const auto yarn_error = [&](const char* name, const json& value) {
        json scaling = yarn;
        scaling[name] = value;
        return error_of(changed("/model/rope_scaling", scaling));
    };
    for (const char* name : {"beta_fast", "beta_slow", "attention_factor"})
        CHECK(lacking(yarn_error(name, 0), {"model.rope_scaling.", name, "expected a number > 0"}) == "");
    CHECK(lacking(yarn_error("truncate", 1), {"model.rope_scaling.truncate: expected true or false"}) == "");
    CHECK(lacking(yarn_error("beta_slow", 33), {"model.rope_scaling.beta_fast: expected at least beta_slow 33"}) == "");
    CHECK(lacking(yarn_error("low_freq_factor", 1), {"unknown key model.rope_scaling.low_freq_factor"}) == "");
    json document = changed("/model/rope_scaling", yarn);
    document["model"]["rope_theta"] = 1;
    CHECK(lacking(error_of(document), {"model.rope_theta is 1", "\"yarn\""}) == "");
    CHECK(lacking(error_with("rope_type", "linear"),
                  {"unknown key model.rope_scaling.", "model.rope_scaling.factor"}) == "");
}

TEST_CASE("end tokens are one, several or none") {
    const auto ends = [](const json& value) {
        return parse_config(changed("/model/eos_token_id", value), "small").model.eos_token_id;
    };
    CHECK(ends(3) == std::vector<std::int64_t>{3});
    CHECK(ends({3, 4}) == std::vector<std::int64_t>{3, 4});
    CHECK(ends(nullptr).empty());
    CHECK(to_json(parse_config(changed("/model/eos_token_id", {3}), "small"))["model"]["eos_token_id"] == 3);
    CHECK(lacking(error_of(changed("/model/eos_token_id", {3, "x"})), {"model.eos_token_id[1]: expected an integer"}) ==
          "");
    CHECK(lacking(error_of(changed("/model/eos_token_id", {3, 999})), {"model.eos_token_id 999"}) == "");
}

TEST_CASE("settings that contradict each other are refused by name") {
    struct Case {
        const char* pointer;
        json value;
        std::vector<std::string> words;
    };
    const Case cases[] = {
        {"/model/num_key_value_heads", 3, {"model.num_attention_heads 4", "model.num_key_value_heads 3"}},
        {"/model/num_key_value_heads", 8, {"model.num_attention_heads 4", "model.num_key_value_heads 8"}},
        {"/model/num_attention_heads", 5, {"model.hidden_size 64", "model.num_attention_heads 5", "head_dim"}},
        {"/model/head_dim", 17, {"model.head_dim 17 is odd"}},
        {"/model/bos_token_id", 256, {"model.bos_token_id 256", "model.vocab_size 256"}},
        {"/model/eos_token_id", 999, {"model.eos_token_id 999", "model.vocab_size 256"}},
        {"/model/max_position_embeddings", 31, {"training.seq_len 32", "model.max_position_embeddings 31"}},
        {"/training/lm_head_chunks", 65, {"training.lm_head_chunks 65", "= 64"}},
        {"/training/micro_batch_size", 1 << 27, {"training.micro_batch_size 134217728", "2^31 - 1"}},
    };
    for (const Case& each : cases) {
        const std::string error = error_of(changed(each.pointer, each.value));
        INFO(each.pointer);
        CHECK(lacking(error, each.words) == "");
    }

    json huge = small_document();
    huge["model"].update({{"hidden_size", 1 << 20}, {"intermediate_size", 1 << 20}, {"num_hidden_layers", 65536}});
    CHECK(lacking(error_of(huge), {"parameters"}) == "");

    // A trial run of fewer steps than the warm-up is a run like any other.
    CHECK(error_of(changed("/lr_schedule/warmup_steps", 11)).empty());
}

TEST_CASE("limits are inclusive") {
    CHECK(error_of(changed("/training/lm_head_chunks", 64)).empty());
    CHECK(error_of(changed("/model/max_position_embeddings", 32)).empty());
    CHECK(error_of(changed("/model/bos_token_id", 255)).empty());
    CHECK(error_of(changed("/optimizer/beta1", 0)).empty());
    CHECK(error_of(changed("/lr_schedule/min_lr_ratio", 1)).empty());
}
