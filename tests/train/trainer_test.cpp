// A training run as a C++ program has it: a configuration, options, and a token shard.
#include "src/train/trainer.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/core/errors.h"
#include "src/engine/finite_state.h"
#include "tests/catch.h"
#include "tests/train/training_folder.h"

using namespace coda;
using Catch::Contains;

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

TEST_CASE("a validation without a counted target is null and no reason to stop") {
    const Folder folder;
    Config config = folder.config("run");
    config.validation = {.interval = 1, .batches = 0};
    Trainer trainer(config, folder.options());
    CHECK(trainer.train() == kExitDone);
    CHECK(folder.log("run")[2]["val_loss"].is_null());
    CHECK_THAT(folder.said(),
               Contains("validation at step 1: loss null, as the validation data has no counted target"));
    CHECK(loss_text(trainer.evaluate()) == "loss null, as the validation data has no counted target");

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
