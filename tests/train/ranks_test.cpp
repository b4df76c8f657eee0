// A training run of several ranks, each a thread: what its first rank writes, and how it continues.
#include <memory>
#include <nlohmann/json.hpp>

#include "src/core/errors.h"
#include "tests/train/rank_training.h"

using namespace coda;
using Catch::Contains;

namespace {

/// A model that 2, 3, 4 and 8 ranks can divide, and steps of 24 micro-batches.
Config config_of(const Folder& folder, const std::string& run, std::int64_t steps) {
    Config config = folder.config(run);
    config.model.hidden_size = 32;
    config.model.intermediate_size = 48;
    config.training.micro_batch_size = 1;
    config.training.grad_accumulation_steps = 24;
    config.training.steps = steps;
    config.lr_schedule.decay_steps = 4;
    return config;
}

std::vector<double> losses(const nlohmann::json& log) {
    std::vector<double> found;
    for (const nlohmann::json& record : log)
        if (record.contains("loss")) found.push_back(record["loss"]);
    return found;
}

}  // namespace

TEST_CASE("several ranks train as one does, but for the order of sums", "[threads]") {
    const Folder folder;
    CHECK(Trainer(config_of(folder, "one", 4), folder.options()).train() == kExitDone);
    const std::vector<double> expected = losses(folder.log("one"));
    for (const int ranks : {2, 3, 4, 8}) {
        INFO(ranks << " ranks");
        const std::string run = "ranks" + std::to_string(ranks), again = run + "_again";
        CHECK(train_ranks(folder, config_of(folder, run, 4), ranks) == kExitDone);
        CHECK(train_ranks(folder, config_of(folder, again, 4), ranks) == kExitDone);
        const std::vector<double> found = losses(folder.log(run));
        REQUIRE(found.size() == expected.size());
        // Sums of 24 micro-batches in fp32, in another order: 48 2^-24 of the magnitudes' sum, and AdamW's first steps
        // divide by a gradient's own size.
        for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(1e-5));
        CHECK((folder.state(run, 4) == folder.state(again, 4)));
        CHECK(folder.state(run, 4).size() == folder.state("one", 4).size());
        CHECK(losses(folder.log(again)) == found);
    }
}

// One rank adds a micro-batch's weight gradients to the sum of those before, and so do ranks. Only the embedding's rows
// are added one token at a time, so it is left out; after one step, since the next one reads it.
TEST_CASE("ranks of one micro-batch each have one rank's bits", "[threads]") {
    const Folder folder;
    for (const int ranks : {2, 3, 4, 8}) {
        const std::string one = "one" + std::to_string(ranks), all = "all" + std::to_string(ranks);
        Config config = config_of(folder, one, 1);
        config.model.tie_word_embeddings = false;
        config.training.grad_accumulation_steps = ranks;
        config.training.max_grad_norm = 0;  // the norm's own sum has another order
        CHECK(Trainer(config, folder.options()).train() == kExitDone);
        config.output.directory = (folder.path() / all).string();
        CHECK(train_ranks(folder, config, ranks) == kExitDone);
        const std::size_t embedding = 64 * 32 * sizeof(float);
        for (const char* segment : {"master.bin", "m.bin", "v.bin"})
            CHECK((folder.segment(all, 1, segment).substr(embedding) ==
                   folder.segment(one, 1, segment).substr(embedding)));
        CHECK(losses(folder.log(all)) == losses(folder.log(one)));
    }
}

// At a step that validates nothing, no pass has waited for the weights before the samples read them.
TEST_CASE("ranks sample from the weights of the last step", "[threads]") {
    const Folder folder;
    const auto samples = [&](const std::string& run) {
        std::vector<nlohmann::json> found;
        for (const nlohmann::json& record : folder.log(run))
            if (record.contains("sample")) found.push_back(record["tokens"]);
        return found;
    };
    Config config = config_of(folder, "one", 3);
    config.model.bos_token_id = 1;
    config.optimizer.learning_rate = 0.05;
    config.validation.batches = 0;
    config.samples.interval = 1;
    config.samples.tokens = 6;
    config.samples.temperature = 0;
    RunOptions options = folder.options();
    options.prompts = std::make_shared<const RunPrompts>(run_prompts(config, false));
    CHECK(Trainer(config, options).train() == kExitDone);
    const std::vector<nlohmann::json> expected = samples("one");
    REQUIRE(expected.size() == 3);
    CHECK(expected[0] != expected[1]);
    for (const int ranks : {2, 4}) {
        INFO(ranks << " ranks");
        const std::string run = "ranks" + std::to_string(ranks);
        config.output.directory = (folder.path() / run).string();
        CHECK(train_ranks(folder, config, ranks) == kExitDone);
        CHECK(samples(run) == expected);
    }
}

TEST_CASE("a checkpoint of any number of ranks is continued by any other", "[threads]") {
    const Folder folder;
    for (const int first : {1, 2, 4, 8})
        for (const int second : {1, 2, 3, 8}) {
            INFO(first << " ranks, then " << second);
            const std::string run = "from" + std::to_string(first) + "to" + std::to_string(second);
            CHECK(train_ranks(folder, config_of(folder, run, 2), first) == kExitDone);
            const std::string saved = folder.state(run, 2);
            // A run that has nothing left to do reads the checkpoint and leaves it.
            CHECK(train_ranks(folder, config_of(folder, run, 2), second, true) == kExitDone);
            CHECK((folder.state(run, 2) == saved));
            CHECK(train_ranks(folder, config_of(folder, run, 4), second, true) == kExitDone);
            if (first != second) continue;
            const std::string whole = "whole" + std::to_string(first);
            CHECK(train_ranks(folder, config_of(folder, whole, 4), first) == kExitDone);
            CHECK((folder.state(run, 4) == folder.state(whole, 4)));
        }
}

TEST_CASE("a run with LayerNorm continues with the bits of an uninterrupted one", "[threads]") {
    const Folder folder;
    const auto with_layernorm = [&](const std::string& run, std::int64_t steps) {
        Config config = config_of(folder, run, steps);
        config.model.mlp = MlpKind::gelu_tanh;
        config.model.norm = NormKind::layernorm;
        return config;
    };
    for (const int ranks : {1, 2}) {
        INFO(ranks << " ranks");
        const std::string parts = "parts" + std::to_string(ranks), whole = "whole" + std::to_string(ranks);
        CHECK(train_ranks(folder, with_layernorm(parts, 2), ranks) == kExitDone);
        CHECK(train_ranks(folder, with_layernorm(parts, 4), ranks, true) == kExitDone);
        CHECK(train_ranks(folder, with_layernorm(whole, 4), ranks) == kExitDone);
        CHECK((folder.state(parts, 4) == folder.state(whole, 4)));
        CHECK(losses(folder.log(parts)) == losses(folder.log(whole)));
    }
}

TEST_CASE("ranks that cannot share a step's micro-batches are told what would do", "[threads]") {
    const Folder folder;
    Config config = config_of(folder, "run", 2);
    config.training.grad_accumulation_steps = 3;
    CHECK_THAT(message_of([&] { train_ranks(folder, config, 2); }),
               Contains("training.grad_accumulation_steps is 3") && Contains("a multiple of 2, such as 4"));
}

TEST_CASE("ranks whose loss is not finite stop alike, and say where it began", "[threads]") {
    const Folder folder;
    Config config = config_of(folder, "run", 8);
    config.optimizer.learning_rate = 1e30;
    config.training.max_grad_norm = 0;
    config.validation.batches = 0;
    std::vector<std::string> said(2);
    run_thread_team(2, 1, [&](Team& team) {
        RunOptions options = folder.options();
        options.team = &team;
        Trainer trainer(config, options);
        try {
            trainer.train();
        } catch (const NonFiniteError& error) {
            said[static_cast<std::size_t>(team.rank())] = error.what();
        }
    });
    CHECK_THAT(said[0], Contains("the first result that is not finite: rank ") && Contains("were not updated"));
    CHECK(said[1] == said[0]);
}

TEST_CASE("a rank whose data fails stops all, with its name, after the steps before are saved", "[threads]") {
    const Folder folder;
    Config config = config_of(folder, "run", 3);
    config.training.grad_accumulation_steps = 12;
    config.data.shuffle = false;
    // The file loses its last tokens when it is open: only the last rank's micro-batches lie there.
    std::string said;
    run_thread_team(2, 1, [&](Team& team) {
        RunOptions options = folder.options();
        options.team = &team;
        Trainer trainer(config, options);
        const std::byte mine[1] = {};
        team.share(mine);
        if (team.rank() == 0) std::filesystem::resize_file(folder.path() / "tokens.bin", 1024 + 2 * 150);
        team.share(mine);
        const std::string message = message_of([&] { trainer.train(); });
        if (team.rank() == 0) said = message;
    });
    CHECK_THAT(said, Contains("rank 1: ") && Contains("step 2 cannot be read") && Contains("Step 1 is complete"));
    CHECK(!folder.state("run", 1).empty());
}
