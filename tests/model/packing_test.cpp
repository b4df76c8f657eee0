// Conversations as a loader reads them from a shard with a mask, through a model in double.
#include "tests/catch.h"
#include "tests/io/test_shards.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSeqLen = 12;

/// Tokens of a conversation, and which of them count.
struct Conversation {
    std::vector<std::uint16_t> tokens;
    std::vector<std::uint8_t> mask;
};
const Conversation kFirst{{3, 14, 15, 9, 26}, {2, 0, 1, 0, 1}};
const Conversation kSecond{{5, 35, 8, 9}, {3, 1, 1, 0}};

/// A row for each element, filled up with token 0, which does not count.
TokenBatch batch_of(const std::vector<std::vector<Conversation>>& rows) {
    const ScratchFolder scratch;
    std::vector<std::uint16_t> tokens;
    std::vector<std::uint8_t> mask;
    for (const auto& row : rows) {
        const std::size_t end = tokens.size() + kSeqLen;
        for (const Conversation& each : row) {
            tokens.insert(tokens.end(), each.tokens.begin(), each.tokens.end());
            mask.insert(mask.end(), each.mask.begin(), each.mask.end());
        }
        tokens.resize(end);
        mask.resize(end);
    }
    tokens.push_back(0);
    mask.push_back(0);
    put(scratch.path() / "a.bin", shard_bytes(tokens));
    put(scratch.path() / "a.mask", mask_bytes(mask));
    const auto file = std::make_shared<const TokenFile>(scratch.path() / "a.bin", 37);
    const auto count = static_cast<std::int64_t>(rows.size());
    return Loader({{file, 0, file->count()}}, {.seq_len = kSeqLen, .vocab = 37}, count).batch(0, count);
}

struct Outcome {
    double loss = 0;
    std::vector<double> losses;
    textbook::Weights gradients;
};

Outcome run(const TokenBatch& batch, std::int64_t window = 0) {
    ModelConfig model = tiny_model();
    model.sliding_window = window;
    ModelRun run(
        model,
        {.batch = static_cast<std::int64_t>(batch.tokens.size()) / kSeqLen, .seq_len = kSeqLen, .document_mask = true},
        kFloat64);
    run.start();
    run.set_weights(textbook::random_weights(model, 7));
    const HostViews& host = run.schedules.host;
    upload_scalar(*run.executor, host.alpha, 1.0 / static_cast<double>(batch.valid));
    Feed(*run.executor, host, *run.tokens, kSeqLen).upload(batch);
    run.executor->run(Pass::first);
    return {download_scalar(*run.executor, host.loss), run.elements(host.losses), run.gradients()};
}

}  // namespace

TEST_CASE("a conversation with a mask is the same tokens with ignored targets") {
    const TokenBatch batch = batch_of({{kFirst}});
    CHECK(batch.targets == std::vector<std::int32_t>{-1, 15, -1, 26, -1, -1, -1, -1, -1, -1, -1, -1});
    TokenBatch by_hand = batch;
    by_hand.targets = {-1, 15, -1, 26, -1, -1, -1, -1, -1, -1, -1, -1};
    by_hand.begins.assign(kSeqLen, 0);
    by_hand.valid = 2;
    const Outcome found = run(batch), expected = run(by_hand);
    CHECK(found.loss == expected.loss);
    CHECK(found.losses == expected.losses);
    CHECK(worst_error(found.gradients, expected.gradients) == 0);
}

TEST_CASE("two conversations packed into a row are the two in rows of their own") {
    const TokenBatch packed = batch_of({{kFirst, kSecond}}), apart = batch_of({{kFirst}, {kSecond}});
    const std::int64_t window = GENERATE(0, 3);
    CHECK(packed.targets == std::vector<std::int32_t>{-1, 15, -1, 26, -1, 35, 8, -1, -1, -1, -1, -1});
    CHECK(packed.valid == 4);
    CHECK(apart.valid == 4);
    const Outcome found = run(packed, window), expected = run(apart, window);
    // 4 losses in another order, and gradients that sum over 24 rows where the packed ones sum over 12.
    CHECK(found.loss == Approx(expected.loss).epsilon(1e-14));
    for (std::size_t t = 0; t < kFirst.tokens.size() - 1; ++t) CHECK(found.losses[t] == expected.losses[t]);
    for (std::size_t t = 0; t < kSecond.tokens.size(); ++t) {
        CHECK(found.losses[kFirst.tokens.size() + t] == expected.losses[kSeqLen + t]);
    }
    CHECK(worst_error(found.gradients, expected.gradients) <= 1e-13);
}

TEST_CASE("a window does not restart positions, and its first keys are there in every batch") {
    ModelConfig model = tiny_model();
    model.sliding_window = 3;
    const textbook::Weights weights = textbook::random_weights(model, 7);
    const textbook::Batch batch = random_batch(model, 2, kSeqLen, 1);
    ModelRun run(model, {.batch = 2, .seq_len = kSeqLen}, kFloat64);
    run.start();
    run.set_weights(weights);
    const HostViews& host = run.schedules.host;
    upload_scalar(*run.executor, host.alpha, 1.0 / static_cast<double>(ModelRun::valid_targets({batch})));
    Feed feed(*run.executor, host, *run.tokens, kSeqLen);
    const std::vector<std::uint8_t> begins(batch.tokens.size(), 1);  // without document_mask nobody looks
    for (int repeat = 0; repeat < 2; ++repeat) {
        feed.upload({.tokens = {batch.tokens.begin(), batch.tokens.end()},
                     .targets = {batch.targets.begin(), batch.targets.end()},
                     .begins = begins});
        run.executor->run(Pass::first);
        CHECK(download_scalar(*run.executor, host.loss) ==
              Approx(textbook::loss(model, weights, {batch})).epsilon(1e-12));
    }
}
