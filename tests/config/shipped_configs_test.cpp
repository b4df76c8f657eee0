// Every file of configs/ parses, survives the round trip and has the shape its name promises.
#include "src/config/config.h"

#include <fstream>

#include "src/config/json_file.h"
#include "src/config/shipped.h"
#include "tests/catch.h"
#include "tests/config/cases.h"

using coda::Config;

namespace {

/// A configuration without a model takes that of --init-from, which is a small one here.
Config shipped(const std::string& name) {
    nlohmann::json document = coda::read_json_file((coda::test::configs_folder() / (name + ".json")).string());
    if (!document.contains("model")) document["model"] = coda::test::small_document()["model"];
    return coda::parse_config(document, name);
}

// The parameter count of a LLaMA, Qwen2 or Qwen3, from the shapes of its Hugging Face tensors.
std::int64_t parameters_of(const coda::ModelConfig& m) {
    const std::int64_t q = m.num_attention_heads * m.head_dim, kv = m.num_key_value_heads * m.head_dim;
    const std::int64_t d = m.hidden_size;
    const std::int64_t block = 2 * d * q + 2 * d * kv + 3 * d * m.intermediate_size + 2 * d +
                               (m.qk_norm ? 2 * m.head_dim : 0) + (m.attention_bias ? q + 2 * kv : 0);
    return m.num_hidden_layers * block + d + (m.tie_word_embeddings ? 1 : 2) * m.vocab_size * d;
}

/// As data/fineweb_edu.py has it: "FILES = 14".
std::string all_files_of_fineweb_edu() {
    std::ifstream script(coda::test::configs_folder() / "../data/fineweb_edu.py");
    for (std::string line; std::getline(script, line);) {
        if (line.starts_with("FILES = ")) return line.substr(8);
    }
    return "FILES is not in data/fineweb_edu.py";
}

}  // namespace

TEST_CASE("every shipped config parses and round-trips") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(coda::test::configs_folder())) {
        INFO(entry.path());
        REQUIRE(entry.path().extension() == ".json");
        const Config config = shipped(entry.path().stem().string());
        CHECK(config.output.directory == "runs/" + entry.path().stem().string());
        CHECK(to_json(coda::parse_config(to_json(config), "other name")) == to_json(config));
        ++files;
    }
    CHECK(files >= 15);
}

TEST_CASE("the data of every shipped config is made by a script, of its vocabulary's tokenizer") {
    for (const auto& entry : std::filesystem::directory_iterator(coda::test::configs_folder())) {
        INFO(entry.path());
        if (entry.path().stem() == "finetune" || entry.path().stem() == "mistral_7b") continue;  // the user's data
        const Config config = shipped(entry.path().stem().string());
        std::vector<std::string> files = config.data.train;
        files.insert(files.end(), config.data.val.begin(), config.data.val.end());
        for (const std::string& file : files) {
            INFO(file);
            const std::string command = coda::data_command(file, config.data.tokenizer, config.model.vocab_size);
            CHECK_FALSE(command.empty());
            CHECK(command.find("--folder") == std::string::npos);  // the script's own default, below the current folder
            const bool bytes = std::filesystem::path(file).extension() == ".txt";
            const char* tokenizer = config.model.vocab_size == 50257    ? " --tokenizer gpt2"
                                    : config.model.vocab_size == 128256 ? " --tokenizer llama3"
                                                                        : " --tokenizer FILE";
            CHECK((command.find(tokenizer) == std::string::npos) == bytes);
            CHECK((config.model.vocab_size == 256) == bytes);
            // A full run reads more than the script fetches of its own accord.
            const bool in_files = file.find("fineweb_edu") != std::string::npos;
            CHECK((command.find(" --files " + all_files_of_fineweb_edu()) != std::string::npos) == in_files);
        }
    }
}

TEST_CASE("the LLaMA configs are the published models") {
    // Parameter counts as published with meta-llama/Llama-3.2-1B, Llama-3.2-3B and Llama-3.1-8B.
    CHECK(parameters_of(shipped("llama1b").model) == 1235814400);
    CHECK(parameters_of(shipped("llama1b_untied").model) == 1235814400 + 128256 * 2048);
    CHECK(parameters_of(shipped("llama3b").model) == 3212749824);
    CHECK(parameters_of(shipped("llama8b").model) == 8030261248);
    for (const char* name : {"llama1b", "llama1b_untied", "llama3b", "llama8b"}) {
        const coda::ModelConfig model = shipped(name).model;
        INFO(name);
        REQUIRE(model.rope_scaling);
        CHECK(model.rope_scaling->factor == (std::string(name) == "llama8b" ? 8 : 32));
        CHECK(model.rope_theta == 500000);
        CHECK(model.max_position_embeddings == 131072);
        CHECK(model.bos_token_id == 128000);
        CHECK(model.eos_token_id == std::vector<std::int64_t>{128001});
        CHECK(shipped(name).training.seq_len == 8192);
    }
    CHECK(shipped("llama8b").optimizer.moments == coda::Moments::bf16);
}

TEST_CASE("the Qwen config is the published model") {
    // The parameters of Qwen/Qwen3-0.6B, which its card gives as 0.6B, and as 0.44B without the embedding.
    const coda::ModelConfig model = shipped("qwen3_0.6b").model;
    CHECK(parameters_of(model) == 596049920);
    CHECK(parameters_of(model) - model.vocab_size * model.hidden_size == 440467456);
    CHECK(model.qk_norm);
    CHECK(model.head_dim == 128);
    CHECK(model.rms_norm_eps == 1e-6);
    CHECK(model.rope_theta == 1000000);
    CHECK_FALSE(model.rope_scaling);
    CHECK(model.max_position_embeddings == 40960);
}

TEST_CASE("qwen2.5_1.5b and the SmolLMs are the published models") {
    // As the cards of Qwen/Qwen2.5-1.5B (1.54B, 1.31B without the embedding), HuggingFaceTB/SmolLM2-135M and -1.7B.
    const coda::ModelConfig qwen = shipped("qwen2.5_1.5b").model;
    CHECK(parameters_of(qwen) == 1543714304);
    CHECK(qwen.attention_bias);
    CHECK_FALSE(qwen.attention_out_bias);
    CHECK(qwen.rope_theta == 1000000);
    CHECK(qwen.rms_norm_eps == 1e-6);
    CHECK(qwen.max_position_embeddings == 131072);
    const coda::ModelConfig small = shipped("smollm2_135m").model, large = shipped("smollm2_1.7b").model;
    CHECK(parameters_of(small) == 134515008);
    CHECK(parameters_of(large) == 1711376384);
    CHECK(small.rope_theta == 100000);
    CHECK(large.rope_theta == 130000);
    CHECK(small.max_position_embeddings == 8192);
    CHECK(large.max_position_embeddings == 8192);
}

TEST_CASE("gpt2_124m is the published model on docs_100m's data") {
    const Config config = shipped("gpt2_124m"), docs = shipped("docs_100m");
    const coda::ModelConfig& m = config.model;
    const std::int64_t d = m.hidden_size, f = m.intermediate_size;
    CHECK(m.num_hidden_layers * (4 * d * d + 4 * d + 2 * d * f + f + d + 4 * d) + 2 * d +
              (m.vocab_size + m.max_position_embeddings) * d ==
          124439808);
    CHECK(to_hf_json(m)["model_type"] == "gpt2");
    CHECK(to_hf_json(m)["activation_function"] == "gelu_new");
    CHECK(m.rms_norm_eps == 1e-5);
    CHECK(m.head_dim == 64);
    CHECK(to_json(config)["training"] == to_json(docs)["training"]);
    CHECK(to_json(config)["data"] == to_json(docs)["data"]);
}

TEST_CASE("mistral_7b is version 0.1 as published") {
    const Config config = shipped("mistral_7b");
    CHECK(parameters_of(config.model) == 7241732096);
    CHECK(config.model.sliding_window == 4096);
    CHECK(config.model.sliding_window < config.training.seq_len);
}

TEST_CASE("the small configs have the size in their name") {
    CHECK(parameters_of(shipped("shakespeare_10m").model) == Approx(10e6).epsilon(0.1));
    CHECK(parameters_of(shipped("shakespeare_100m").model) == Approx(100e6).epsilon(0.1));
    CHECK(parameters_of(shipped("docs_100m").model) == Approx(114e6).epsilon(0.01));
    CHECK(shipped("demo").model.vocab_size == 256);
}

TEST_CASE("docs_100m is one pass over 25 million tokens") {
    const coda::TrainingConfig training = shipped("docs_100m").training;
    const std::int64_t step = training.micro_batch_size * training.grad_accumulation_steps * training.seq_len;
    CHECK(step == 32768);
    CHECK(training.steps * step == 25559040);
    // All that data/docs.py keeps of so much text for validation, at its default fraction.
    const coda::ValidationConfig validation = shipped("docs_100m").validation;
    CHECK(validation.batches * training.micro_batch_size * training.seq_len > 2 * 142138);
    CHECK(training.steps % validation.interval == 0);
}
