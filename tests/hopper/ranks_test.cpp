// A training run of several ranks, each a thread, which share one GPU.
#include "src/core/errors.h"
#include "src/engine/hopper_executor.h"
#include "src/io/files.h"
#include "src/io/sha256.h"
#include "tests/catch.h"
#include "tests/hopper/harness.h"
#include "tests/train/rank_training.h"

using namespace coda;
using namespace coda::test;

namespace {

Config config_of(const Folder& folder, const std::string& run, int micro_batches) {
    Config config = folder.config(run);
    config.model.hidden_size = 128;
    config.model.intermediate_size = 256;
    config.model.num_attention_heads = 2;
    config.model.num_key_value_heads = 1;
    config.model.head_dim = 64;
    config.model.tie_word_embeddings = false;
    config.training.seq_len = 64;
    config.training.micro_batch_size = 2;
    config.training.grad_accumulation_steps = micro_batches;
    config.training.steps = 3;
    config.device = DeviceChoice::cuda;
    return config;
}

}  // namespace

// As on a CPU (tests/train/ranks_test.cpp): the sums of micro-batches have one rank's order, but for the rows of the
// embedding's gradient, after one step, without the norm.
TEST_CASE("ranks of one micro-batch each have one rank's bits on a GPU", "[gpu]") {
    if (!has_hopper()) return;
    const Folder folder;
    for (const int ranks : {2, 4}) {
        INFO(ranks << " ranks");
        Config config = config_of(folder, "one" + std::to_string(ranks), ranks);
        config.training.steps = 1;
        config.training.max_grad_norm = 0;
        CHECK(Trainer(config, folder.options()).train() == kExitDone);
        config.output.directory = (folder.path() / ("all" + std::to_string(ranks))).string();
        CHECK(train_ranks(folder, config, ranks) == kExitDone);
        const std::size_t embedding = 64 * 128 * sizeof(float);
        for (const char* segment : {"master.bin", "m.bin", "v.bin"}) {
            INFO(segment);
            const std::string expected = folder.segment("one" + std::to_string(ranks), 1, segment);
            const std::string found = folder.segment("all" + std::to_string(ranks), 1, segment);
            REQUIRE(expected.size() > embedding);
            CHECK((found.substr(embedding) == expected.substr(embedding)));
        }
    }
}

TEST_CASE("two ranks on one GPU repeat their bits", "[gpu]") {
    if (!has_hopper()) return;
    const Folder folder;
    const auto digest = [&](const std::string& run, const char* precision) {
        Config config = config_of(folder, run, 4);
        if (precision == std::string("fp8")) config.precision = PrecisionConfig::fp8();
        CHECK(train_ranks(folder, config, 2) == kExitDone);
        const std::string state = folder.state(run, 3);
        REQUIRE(!state.empty());
        return sha256(bytes_of(state));
    };
    for (const char* precision : {"bf16", "fp8"}) {
        const std::string first = digest(std::string(precision) + "_first", precision);
        CHECK(digest(std::string(precision) + "_again", precision) == first);
        // To compare with ranks that are processes, of other GPUs.
        WARN(precision << ": SHA-256 of master, m and v after 3 steps " << first);
    }
}
