// Training on shards with masks.
#include <cstring>

#include "src/core/errors.h"
#include "src/train/trainer.h"
#include "tests/catch.h"
#include "tests/io/test_files.h"
#include "tests/io/test_shards.h"
#include "tests/train/training_folder.h"

using namespace coda;
using Catch::Contains;

namespace {

constexpr std::size_t kSeqLen = 8;

/// tokens.bin and its mask, whose rows of kSeqLen count rows[i] targets each, from the second token of a row on.
void put_rows(const Folder& folder, const std::vector<std::size_t>& rows) {
    std::vector<std::uint8_t> mask;
    for (const std::size_t targets : rows) {
        for (std::size_t t = 0; t < kSeqLen; ++t) mask.push_back(t == 0 ? 2 : t <= targets ? 1 : 0);
    }
    mask.push_back(2);
    write_shard(folder.path() / "tokens.bin", mask.size());
    put(folder.path() / "tokens.mask", mask_bytes(mask));
    write_shard(folder.path() / "val.bin", 100);
}

Config config_of(const Folder& folder, const std::string& run, std::int64_t micro_batch, std::int64_t accumulation) {
    Config config = folder.config(run);
    config.data.val = {(folder.path() / "val.bin").string()};
    config.data.shuffle = false;
    config.training.micro_batch_size = micro_batch;
    config.training.grad_accumulation_steps = accumulation;
    config.lr_schedule.type = LrScheduleType::constant;
    config.checkpoint = {.interval = 1, .keep = 9};
    return config;
}

std::vector<float> floats(const std::string& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

}  // namespace

TEST_CASE("micro-batches of very unequal masks make the step of one large batch") {
    const Folder folder;
    put_rows(folder, {7, 7, 7, 0, 1, 0});
    const auto train = [&](const char* run, std::int64_t micro_batch, std::int64_t accumulation) {
        Config config = config_of(folder, run, micro_batch, accumulation);
        config.training.steps = 1;
        config.training.max_grad_norm = 0;  // a clipped gradient hides its scale
        CHECK(Trainer(config, folder.options()).train() == kExitDone);
        return folder.log(run)[1]["loss"].get<double>();
    };
    CHECK(train("parts", 3, 2) == Approx(train("whole", 6, 1)).epsilon(1e-6));
    const std::vector<float> parts = floats(folder.segment("parts", 1, "m.bin"));
    const std::vector<float> whole = floats(folder.segment("whole", 1, "m.bin"));
    REQUIRE(parts.size() == whole.size());
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        largest = std::max<double>(largest, std::abs(whole[i]));
        difference = std::max<double>(difference, std::abs(parts[i] - whole[i]));
    }
    CHECK(largest > 0);
    CHECK(difference <= 1e-5 * largest);  // sums of 22 fp32 terms in another order
}

TEST_CASE("a step without a counted target changes no weight and no moment, and says so") {
    const Folder folder;
    // Step 2 has targets in the first of its two micro-batches, steps 3 and 4 have none.
    put_rows(folder, {7, 7, 7, 7, 7, 7, /**/ 7, 7, 7, 0, 0, 0, /**/ 0, 0, 0, 0, 0, 0, /**/ 0, 0, 0, 0, 0, 0});
    const auto train = [&](const char* run, std::int64_t steps, std::int64_t accumulation, bool resume) {
        Config config = config_of(folder, run, 3, accumulation);
        config.training.steps = steps;
        RunOptions options = folder.options();
        options.resume = resume;
        return Trainer(config, options).train();
    };
    CHECK(train("run", 4, 2, false) == kExitDone);
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
    CHECK(train("split", 1, 2, false) == kExitDone);
    CHECK(train("split", 2, 1, true) == kExitDone);
    CHECK((folder.state("split", 2) == folder.state("run", 2)));
}

TEST_CASE("a validation is a mean over the targets that its masks count") {
    const Folder folder;
    put_rows(folder, {7, 7, 7, 7, 7, 7});
    const auto loss_of = [&](const std::vector<std::size_t>& rows) {
        put_rows(folder, rows);
        Config config = config_of(folder, "unused", 3, 2);
        config.data.val = {(folder.path() / "tokens.bin").string()};
        config.validation.batches = 9;
        return Trainer(config, folder.options()).evaluate();
    };
    const ValidationLoss first = loss_of({5, 0, 2, 0, 0, 0}), second = loss_of({0, 0, 0, 0, 1, 0});
    const ValidationLoss both = loss_of({5, 0, 2, 0, 1, 0});
    CHECK(first.tokens == 7);
    CHECK(second.tokens == 1);
    CHECK(both.tokens == 8);
    CHECK(both.loss == Approx((7 * first.loss + second.loss) / 8).epsilon(1e-6));
    CHECK(first.loss != second.loss);
}

TEST_CASE("masks that count hardly a token are noted, and document_mask without BOS needs a mask") {
    const Folder folder;
    put_rows(folder, {2, 0, 0, 0, 0, 0});
    Config config = config_of(folder, "few", 3, 2);
    config.training.steps = 1;
    config.data.document_mask = true;
    CHECK_THAT(message_of([&] { Trainer(config, folder.options()); }),
               Contains("data.document_mask: needs model.bos_token_id") && Contains("val.bin"));
    put(folder.path() / "val.mask", mask_bytes(std::vector<std::uint8_t>(100, 1)));
    CHECK(Trainer(config, folder.options()).train() == kExitDone);
    CHECK_THAT(folder.said(), Contains("note: the masks of data.train count 2 of 49 tokens, less than 5%"));

    const Folder enough;
    put_rows(enough, {3, 0, 0, 0, 0, 0});
    config = config_of(enough, "enough", 3, 2);
    config.training.steps = 1;
    CHECK(Trainer(config, enough.options()).train() == kExitDone);
    CHECK_THAT(enough.said(), !Contains("the masks of data.train"));
}

TEST_CASE("a run does not resume on another mask") {
    const Folder folder;
    put_rows(folder, {7, 7, 7, 7, 7, 7});
    Config config = config_of(folder, "run", 3, 2);
    config.training.steps = 1;
    CHECK(Trainer(config, folder.options()).train() == kExitDone);
    put_rows(folder, {7, 7, 7, 7, 7, 6});
    config.training.steps = 2;
    RunOptions resume = folder.options();
    resume.resume = true;
    CHECK_THAT(message_of([&] { Trainer(config, resume); }), Contains("tokens.bin has another mask"));
    resume.allow.changed_data = true;
    CHECK(Trainer(config, resume).train() == kExitDone);
}
