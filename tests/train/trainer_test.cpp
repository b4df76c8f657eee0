// A training run as a C++ program has it: a configuration, options, and a token shard.
#include "src/train/trainer.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/core/errors.h"
#include "src/engine/finite_state.h"
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
    /// Weights and moments of a checkpoint, to the bit.
    std::string state(const std::string& run, std::int64_t step) const {
        std::string all;
        for (const char* segment : {"master.bin", "m.bin", "v.bin"}) {
            const auto folder = scratch_.path() / run / "checkpoints" / text("step_0000000", step);
            std::ifstream in(folder / segment, std::ios::binary);
            all.append(std::istreambuf_iterator<char>(in), {});
        }
        return all;
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

TEST_CASE("a trainer continues from a checkpoint, and refuses a folder that holds a run") {
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
    // Behind step 1 its log has the validation at the end of the first run, and the second start. Step 3 has seen
    // moments of the checkpoint.
    CHECK(folder.log("split")[3]["start"]["command"] == "a test");
    CHECK(folder.log("split")[5]["loss"] == folder.log("whole")[3]["loss"]);
    CHECK_THAT(folder.said(), Contains("resumed from"));
}

TEST_CASE("a checkpoint of a version without the watch over spikes continues") {
    const Folder folder;
    Config config = folder.config("run");
    config.training.steps = 40;
    config.lr_schedule.type = LrScheduleType::constant;
    CHECK(Trainer(config, folder.options()).train() == kExitDone);
    const auto ignored = [](const std::string&) {};
    const std::filesystem::path run = config.output.directory;
    const CheckpointInfo saved = newest_checkpoint(run, ignored).value();
    std::vector<std::vector<std::byte>> contents;
    std::vector<Segment> segments;
    for (const SegmentInfo& info : saved.segments) contents.emplace_back(static_cast<std::size_t>(info.bytes));
    for (std::size_t i = 0; i < contents.size(); ++i) {
        read_segment(saved, saved.segments[i].name, contents[i]);
        segments.emplace_back(saved.segments[i].name, contents[i]);
    }
    nlohmann::json state = saved.state;
    CHECK(state.erase("spike_watch") == 1);
    CHECK(state["config"]["training"].erase("skip_spikes") == 1);
    write_checkpoint(run, saved.step, state, segments, 1);

    config.training.steps = 42;
    RunOptions resume = folder.options();
    resume.resume = true;
    CHECK(Trainer(config, resume).train() == kExitDone);
    const nlohmann::json log = folder.log("run");
    CHECK(log[40]["norm_z"].is_number());
    CHECK(log[43]["step"] == 41);        // behind step 40 the validation and the second start
    CHECK(log[43]["norm_z"].is_null());  // the warm-up begins again
    CHECK_THAT(folder.said(), !Contains("skip_spikes"));
}

// No data file can make such a step, so its loader is of one epoch, beyond which all targets are ignored: step 2 has
// targets in the first of its two micro-batches, steps 3 and 4 have none.
TEST_CASE("a step without a counted target changes no weight and no moment, and says so") {
    const Folder folder;
    const auto config_of = [&](const char* run, std::int64_t steps, std::int64_t accumulation) {
        Config config = folder.config(run);
        config.training.steps = steps;
        config.training.grad_accumulation_steps = accumulation;
        config.lr_schedule.type = LrScheduleType::constant;
        config.checkpoint = {.interval = 1, .keep = 9};
        return config;
    };
    const auto train = [&](const Config& config, bool resume) {
        TrainingData data = open_training_data(config);
        TokenRanges tokens = open_datasets(config.data, 8, 64).train;
        tokens[0].end = 9 * 8 + 1;
        data.train =
            std::make_unique<Loader>(std::move(tokens), LoaderOptions{.seq_len = 8, .vocab = 64, .repeat = false}, 6);
        RunOptions options = folder.options();
        options.resume = resume;
        return Trainer(config, options, std::move(data)).train();
    };
    CHECK(train(config_of("run", 4, 2), false) == kExitDone);
    CHECK((folder.state("run", 1) != folder.state("run", 2)));
    CHECK((folder.state("run", 2) == folder.state("run", 3)));
    CHECK((folder.state("run", 2) == folder.state("run", 4)));
    const nlohmann::json log = folder.log("run");
    for (const std::size_t step : {1, 2}) {
        CHECK(log[step]["loss"].is_number());
        CHECK_FALSE(log[step].contains("skipped"));
    }
    for (const std::size_t step : {3, 4}) {
        CHECK(log[step]["loss"].is_null());
        CHECK(log[step]["grad_norm"] == 0);
        CHECK(log[step]["norm_z"].is_null());
        CHECK(log[step]["skipped"] == "no counted target");
    }
    CHECK(log[5]["val_loss"].is_number());
    CHECK_THAT(folder.said(), Contains("step 3 has no counted target: the update was dropped") &&
                                  Contains("step 4 has no counted target") && !Contains("step 2 has"));

    // The empty micro-batch of step 2 has no part in its loss or gradient.
    CHECK(train(config_of("split", 1, 2), false) == kExitDone);
    CHECK(train(config_of("split", 2, 1), true) == kExitDone);
    CHECK((folder.state("split", 2) == folder.state("run", 2)));
}

TEST_CASE("a validation without a counted target is null and no reason to stop") {
    const Folder folder;
    Config config = folder.config("run");
    config.validation = {.interval = 1, .batches = 0};
    Trainer trainer(config, folder.options());
    CHECK(trainer.train() == kExitDone);
    CHECK(folder.log("run")[2]["val_loss"].is_null());
    CHECK_THAT(folder.said(), Contains("note: validation at step 1 has no counted target"));
    CHECK(validation_line(trainer.evaluate()) == "validation loss null: the validation data has no counted target");

    trainer.session().set_alpha(0);
    CHECK(download_scalar(trainer.session().executor(), trainer.session().host().alpha) == 0);
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
    const WeightsSource source(config, options.weights(), false, {}, console);
    CHECK(source.step() == 2);
    session.set_weights(*source.open(session.layout()));
    CHECK(Evaluator(session, open_evaluation_data(config), console).validation().loss == trainer.evaluate().loss);
    CHECK(session.plan().arena_bytes() < trainer.session().plan().arena_bytes() / 2);

    options.resume = false;
    options.init_from = "no such folder";
    CHECK_THAT(message_of([&] { WeightsSource(config, options.weights(), false, {}, console).open(session.layout()); }),
               Contains("no such folder"));
}

TEST_CASE("a magnitude of an FP8 tensor that is not finite is not saved, and the message names its tensor") {
    const Folder folder;
    Config config = folder.config("run");
    config.precision = PrecisionConfig::fp8();
    config.model.intermediate_size = 32;
    config.training.micro_batch_size = 2;
    Trainer trainer(config, folder.options());
    CHECK(trainer.train() == kExitDone);
    Session& session = trainer.session();
    CHECK_NOTHROW(require_finite_state(session, 2));

    const View& history = session.host().f8.history;
    std::vector<float> values(static_cast<std::size_t>(history.count()));
    session.executor().download(history, values.data());
    const std::vector<ScaledTensor>& tensors = session.schedules().weights.tensors();
    const auto gate_up = std::find(tensors.begin(), tensors.end(), ScaledTensor{1, "gate_up.weight"}) - tensors.begin();
    values[static_cast<std::size_t>(3 * history.cols + gate_up)] = std::numeric_limits<float>::infinity();
    session.executor().upload(history, values.data());
    CHECK_THAT(message_of([&] { require_finite_state(session, 2); }),
               Contains("step 2: a largest magnitude is not finite: gate_up.weight of layer 1"));
}
