// A training run as a C++ program has it: a configuration, options, and a token shard.
#include "src/train/trainer.h"

#include <cmath>
#include <fstream>

#include "src/core/errors.h"
#include "tests/catch.h"
#include "tests/io/scratch_folder.h"

using namespace coda;
using Catch::Contains;

namespace {

/// An llm.c shard of `count` tokens below 64.
void write_shard(const std::filesystem::path& file, std::size_t count) {
    std::vector<std::int32_t> header(256, 0);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = static_cast<std::int32_t>(count);
    std::vector<std::uint16_t> tokens;
    for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::uint16_t>(i * i * 7 % 61));
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(header.data()), 1024);
    out.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(2 * count));
}

class Folder {
  public:
    Folder() { write_shard(scratch_.path() / "tokens.bin", 1200); }
    ~Folder() { std::fclose(output_); }

    Config config(const std::string& run) const {
        nlohmann::json json = nlohmann::json::parse(R"({
            "model": {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
                      "num_key_value_heads": 2, "vocab_size": 64, "tie_word_embeddings": true},
            "training": {"seq_len": 8, "micro_batch_size": 3, "grad_accumulation_steps": 2, "steps": 2},
            "validation": {"batches": 3},
            "device": "cpu"
        })");
        json["data"]["train"] = (scratch_.path() / "tokens.bin").string();
        json["output"]["directory"] = (scratch_.path() / run).string();
        return parse_config(json, "test");
    }
    /// Nothing of it reaches the test's own output.
    RunOptions options() const {
        RunOptions options;
        options.command = "a test";
        options.out = options.err = output_;
        return options;
    }
    nlohmann::json log(const std::string& run) const {
        std::ifstream in(scratch_.path() / run / "log.jsonl");
        nlohmann::json records = nlohmann::json::array();
        for (std::string line; std::getline(in, line);) records.push_back(nlohmann::json::parse(line));
        return records;
    }
    std::string said() const {
        std::rewind(output_);
        std::string all(1 << 14, '\0');
        all.resize(std::fread(all.data(), 1, all.size(), output_));
        return all;
    }

  private:
    ScratchFolder scratch_;
    std::FILE* output_ = std::tmpfile();
};

}  // namespace

TEST_CASE("two trainers of one configuration train, evaluate and log the same") {
    const Folder folder;
    Trainer one(folder.config("one"), folder.options()), two(folder.config("two"), folder.options());
    const ValidationLoss before = one.evaluate();
    CHECK(before.tokens > 0);
    CHECK(before.loss == Approx(std::log(64)).epsilon(0.05));  // of weights that know nothing
    CHECK(one.train() == kExitDone);
    CHECK(two.train() == kExitDone);
    const ValidationLoss after = one.evaluate();
    CHECK(after.tokens == before.tokens);
    CHECK(after.loss != before.loss);
    CHECK(two.evaluate().loss == after.loss);

    const nlohmann::json log = folder.log("one"), other = folder.log("two");
    CHECK(log[0]["command"] == "a test");
    CHECK(log[0]["config"] == to_json(folder.config("one")));
    CHECK(log[1]["loss"] == other[1]["loss"]);
    CHECK(log[2]["loss"] == other[2]["loss"]);
    CHECK(log[2]["loss"] != log[1]["loss"]);
    CHECK(log.back()["val_loss"].get<double>() == Approx(after.loss).epsilon(1e-8));
    CHECK_THAT(folder.said(), Contains("validation at step 2") && Contains("2 steps of 48 tokens"));
}

TEST_CASE("a trainer goes on from a checkpoint, and refuses a folder that holds a run") {
    const Folder folder;
    const auto config_of = [&](const char* run, std::int64_t steps) {
        Config config = folder.config(run);
        config.training.steps = steps;
        config.lr_schedule.decay_steps = 3;
        return config;
    };
    const Config config = config_of("whole", 3);
    CHECK(Trainer(config, folder.options()).train() == kExitDone);
    CHECK_THAT(message_of([&] { Trainer(config, folder.options()); }), Contains("already holds a run"));

    CHECK(Trainer(config_of("split", 1), folder.options()).train() == kExitDone);
    RunOptions resume = folder.options();
    resume.resume = true;
    Trainer resumed(config_of("split", 3), resume);
    CHECK(resumed.train() == kExitDone);
    // Behind step 1 its log has the validation at the end of the first run. Step 3 has seen moments of the checkpoint.
    CHECK(folder.log("split")[4]["loss"] == folder.log("whole")[3]["loss"]);
    CHECK_THAT(folder.said(), Contains("resumed from"));
}

TEST_CASE("an evaluation session has a trainer's validation loss, and no memory for training") {
    const Folder folder;
    const Config config = folder.config("run");
    Trainer trainer(config, folder.options());
    CHECK(trainer.train() == kExitDone);

    RunOptions options = folder.options();
    options.resume = true;
    Console console(options.out);
    Session session(config, passes_of(Mode::evaluate), false, console);
    const WeightsSource source(config, options, false, {}, console);
    CHECK(source.step() == 2);
    session.set_weights(*source.open(session.layout()));
    CHECK(Evaluator(session, open_evaluation_data(config), console).validation().loss == trainer.evaluate().loss);
    CHECK(session.plan().arena_bytes() < trainer.session().plan().arena_bytes() / 2);

    options.resume = false;
    options.init_from = "no such folder";
    CHECK_THAT(message_of([&] { WeightsSource(config, options, false, {}, console).open(session.layout()); }),
               Contains("no such folder"));
}
