#include "src/io/loader.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include "tests/catch.h"
#include "tests/io/test_shards.h"

using namespace coda;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kVocab = 100000;

struct Batch {
    std::vector<std::int32_t> tokens, targets;
    bool operator==(const Batch&) const = default;
};

Batch read(const Loader& loader, std::int64_t first, std::int64_t count, std::int64_t seq_len) {
    const TokenBatch batch = loader.batch(first, count);
    REQUIRE(batch.begins.size() == static_cast<std::size_t>(count * seq_len));
    return {batch.tokens, batch.targets};
}

TokenRanges ranges_of(const fs::path& pattern) {
    return open_datasets({{pattern.string()}, {pattern.string()}, true, false}, 4, kVocab).train;
}

/// All tokens of the ranges, in order.
std::vector<std::int32_t> all_tokens(const TokenRanges& ranges) {
    std::vector<std::int32_t> all;
    for (const TokenRange& range : ranges) {
        std::vector<std::int32_t> part(static_cast<std::size_t>(range.count()));
        range.file->read(range.begin, part, kVocab);
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

std::vector<std::int32_t> iota(std::int32_t first, std::int64_t count) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), first);
    return values;
}

}  // namespace

TEST_CASE("without shuffling the windows come in order and stay within their files") {
    const ScratchFolder scratch;
    put_counting_shard(scratch.path() / "a.bin", 0, 13);     // 3 windows of 4 + 1: all 13 tokens
    put_counting_shard(scratch.path() / "b.bin", 1000, 4);   // none: the last target is missing
    put_counting_shard(scratch.path() / "c.bin", 2000, 12);  // 2 windows, and 3 tokens left over
    const Loader loader(ranges_of(scratch.path() / "*.bin"), {.seq_len = 4, .vocab = kVocab}, 1);
    REQUIRE(loader.sequences() == 5);
    const Batch batch = read(loader, 0, 5, 4);
    CHECK(batch.tokens == std::vector<std::int32_t>{0,  1,  2,    3,    4,    5,    6,    7,    8,    9,
                                                    10, 11, 2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007});
    CHECK(batch.targets == std::vector<std::int32_t>{1,  2,  3,    4,    5,    6,    7,    8,    9,    10,
                                                     11, 12, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 2008});
}

TEST_CASE("every epoch reads every sequence once, in an order of its own, from whichever step it is resumed") {
    const ScratchFolder scratch;
    put_counting_shard(scratch.path() / "a.bin", 0, 4 * 50 + 1);
    put_counting_shard(scratch.path() / "b.bin", 5000, 4 * 30 + 1);
    const TokenRanges ranges = ranges_of(scratch.path() / "*.bin");
    const Loader loader(ranges, {.seq_len = 4, .vocab = kVocab, .shuffle = true, .seed = 1337}, 8);
    const std::int64_t sequences = loader.sequences();
    REQUIRE(sequences == 80);

    const Batch three_epochs = read(loader, 0, 3 * sequences, 4);
    std::vector<std::vector<std::int32_t>> orders(3);
    for (std::size_t row = 0; row < 240; ++row) {
        const std::int32_t* tokens = &three_epochs.tokens[4 * row];
        CHECK(std::equal(tokens + 1, tokens + 4, &three_epochs.targets[4 * row]));
        CHECK(three_epochs.targets[4 * row + 3] == tokens[0] + 4);
        CHECK(tokens[0] % 4 == 0);
        orders[row / 80].push_back(tokens[0]);
    }
    for (const auto& order : orders) CHECK(std::set<std::int32_t>(order.begin(), order.end()).size() == 80);
    CHECK(orders[0] != orders[1]);
    CHECK(orders[1] != orders[2]);
    CHECK_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));

    // A step in the middle, across the end of an epoch, read by a fresh loader.
    const Batch step =
        read(Loader(ranges, {.seq_len = 4, .vocab = kVocab, .shuffle = true, .seed = 1337}, 8), 76, 8, 4);
    CHECK(std::equal(step.tokens.begin(), step.tokens.end(), three_epochs.tokens.begin() + 76 * 4));
    CHECK(std::equal(step.targets.begin(), step.targets.end(), three_epochs.targets.begin() + 76 * 4));

    const Loader other(ranges, {.seq_len = 4, .vocab = kVocab, .shuffle = true, .seed = 1338}, 8);
    CHECK(read(other, 0, 80, 4).tokens != read(loader, 0, 80, 4).tokens);
}

TEST_CASE("threads share a loader and each reads what a single thread reads", "[threads]") {
    const ScratchFolder scratch;
    put_counting_shard(scratch.path() / "a.bin", 0, 401);
    put_counting_shard(scratch.path() / "b.bin", 1000, 203);
    constexpr std::int64_t kSteps = 60, kCount = 8, kSeqLen = 4;
    const Loader loader(ranges_of(scratch.path() / "*.bin"), {.seq_len = kSeqLen, .vocab = kVocab, .shuffle = true}, 1);
    std::vector<Batch> alone;
    for (std::int64_t step = 0; step < kSteps; ++step) alone.push_back(read(loader, step * kCount, kCount, kSeqLen));
    std::vector<std::vector<Batch>> together(4);
    std::vector<std::thread> threads;
    for (std::vector<Batch>& batches : together) {
        threads.emplace_back([&] {
            for (std::int64_t step = 0; step < kSteps; ++step) {
                batches.push_back(read(loader, step * kCount, kCount, kSeqLen));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::vector<Batch>& batches : together) CHECK(batches == alone);
}

TEST_CASE("beyond its one epoch a loader that does not repeat gives ignored targets") {
    const ScratchFolder scratch;
    put_counting_shard(scratch.path() / "a.bin", 0, 4 * 3 + 1);
    const Loader loader(ranges_of(scratch.path() / "a.bin"), {.seq_len = 4, .vocab = kVocab, .repeat = false}, 1);
    const Batch batch = read(loader, 2, 2, 4);
    CHECK(batch.tokens == std::vector<std::int32_t>{8, 9, 10, 11, 0, 0, 0, 0});
    CHECK(batch.targets == std::vector<std::int32_t>{9, 10, 11, 12, -1, -1, -1, -1});
    CHECK(read(loader, 0, 3, 4) == read(loader, 0, 3, 4));
}

TEST_CASE("the last tenth of all tokens is validation and not in train") {
    const ScratchFolder scratch;
    put_counting_shard(scratch.path() / "a.bin", 0, 700);
    put_counting_shard(scratch.path() / "b.bin", 700, 300);
    const DataConfig data{{(scratch.path() / "*.bin").string()}, {}, true, false};
    const Datasets parts = open_datasets(data, 8, kVocab);
    CHECK(all_tokens(parts.train) == iota(0, 900));
    CHECK(all_tokens(parts.val) == iota(900, 100));

    // What the loaders read obeys the split, targets included.
    const Loader train(parts.train, {.seq_len = 8, .vocab = kVocab, .shuffle = true, .seed = 1}, 1);
    const Loader val(parts.val, {.seq_len = 8, .vocab = kVocab, .repeat = false}, 1);
    const Batch trained = read(train, 0, train.sequences(), 8);
    const Batch validated = read(val, 0, val.sequences(), 8);
    CHECK(*std::max_element(trained.targets.begin(), trained.targets.end()) < 900);
    CHECK(validated.tokens.front() == 900);
    CHECK(val.sequences() == 12);  // (100 - 1) / 8
    CHECK(train.sequences() == 699 / 8 + 199 / 8);
}

TEST_CASE("validation grows until it holds one sequence") {
    const ScratchFolder scratch;
    const auto split = [&](std::int64_t seq_len) {
        return open_datasets({{(scratch.path() / "*.bin").string()}, {}, true, false}, seq_len, kVocab);
    };
    put_counting_shard(scratch.path() / "a.bin", 0, 100);
    CHECK(all_tokens(split(20).val) == iota(79, 21));  // a tenth would be 10 tokens
    CHECK(all_tokens(split(20).train) == iota(0, 79));

    put_counting_shard(scratch.path() / "b.bin", 100, 15);  // too short for a sequence: a.bin's end is needed
    CHECK(all_tokens(split(20).val) == iota(79, 36));

    CHECK_THROWS_WITH(split(60), Contains("data.train") && Contains("data.val") && Contains("seq_len = 60"));
    CHECK_THROWS_WITH(split(100), Contains("data.train") && Contains("a.bin") && Contains("115 tokens") &&
                                      Contains("101 tokens of one file"));
}

TEST_CASE("named validation files leave train whole, and too short ones are named") {
    const ScratchFolder scratch;
    put_counting_shard(scratch.path() / "train.bin", 0, 100);
    put_counting_shard(scratch.path() / "val.bin", 500, 10);
    const DataConfig data{
        {(scratch.path() / "train.bin").string()}, {(scratch.path() / "val.bin").string()}, true, false};
    CHECK(all_tokens(open_datasets(data, 9, kVocab).train) == iota(0, 100));
    CHECK(all_tokens(open_datasets(data, 9, kVocab).val) == iota(500, 10));
    CHECK_THROWS_WITH(open_datasets(data, 10, kVocab), Contains("data.val") && Contains("val.bin"));
}

TEST_CASE("missing data of a script's folder is answered with the script's command") {
    DataConfig data;
    data.train = {"nowhere/tinystories/train_*.bin"};
    CHECK_THROWS_WITH(open_datasets(data, 8, 50257),
                      Contains("no file matches 'nowhere/tinystories/train_*.bin'") &&
                          Contains("data/tinystories.py --folder nowhere/tinystories --tokenizer gpt2"));
    data.tokenizer = "t.json";
    CHECK_THROWS_WITH(open_datasets(data, 8, 50257), Contains("tinystories.py") && Contains("--tokenizer t.json"));
    data.train = {"nowhere/else/train_*.bin"};
    CHECK_THROWS_WITH(open_datasets(data, 8, 50257), Contains("train_*.bin") && !Contains("make"));
}

TEST_CASE("less data than one step takes is refused") {
    const ScratchFolder scratch;
    put_counting_shard(scratch.path() / "a.bin", 0, 4 * 7 + 1);
    const TokenRanges ranges = ranges_of(scratch.path() / "a.bin");
    CHECK_NOTHROW(Loader(ranges, {.seq_len = 4, .vocab = kVocab}, 7));
    CHECK_THROWS_WITH(Loader(ranges, {.seq_len = 4, .vocab = kVocab}, 8),
                      Contains("a.bin") && Contains("7 sequences") && Contains("one step takes 8"));
    CHECK_THROWS_AS(Loader({}, {.seq_len = 4, .vocab = kVocab}, 0), Error);
}

TEST_CASE("a batch with an id outside the vocabulary names file and place") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "late.bin";
    std::vector<std::uint16_t> tokens(static_cast<std::size_t>(kCheckedTokens) + 9, 1);
    tokens.back() = 50000;  // beyond the tokens that opening checks
    put(path, shard_bytes(tokens));
    const auto file = std::make_shared<const TokenFile>(path, 100);
    const Loader loader({{file, 0, file->count()}}, {.seq_len = 8, .vocab = 100}, 1);
    CHECK_NOTHROW(read(loader, loader.sequences() - 2, 1, 8));
    CHECK_THROWS_WITH(read(loader, loader.sequences() - 1, 1, 8),
                      Contains("late.bin") && Contains("token 1048584 has id 50000"));
}

TEST_CASE("a batch before the first sequence is refused") {
    const ScratchFolder scratch;
    put_counting_shard(scratch.path() / "a.bin", 0, 100);
    const Loader loader(ranges_of(scratch.path() / "a.bin"), {.seq_len = 4, .vocab = kVocab}, 1);
    CHECK_THROWS_AS(loader.batch(-1, 2), Error);
    CHECK_THROWS_AS(loader.batch(0, -2), Error);
}

TEST_CASE("documents start at BOS and at the beginning of every sequence") {
    constexpr std::int32_t bos = 9;
    const std::vector<std::int32_t> tokens = {1,   2,   bos, 3, 4, bos,  //
                                              bos, bos, 5,   6, 7, 8,    //
                                              1,   2,   3,   4, 5, 6};
    std::vector<std::int32_t> positions(18), doc_start(18);
    const std::vector<std::uint8_t> begins = begins_at(bos, tokens);
    document_starts(begins, 6, positions, doc_start);
    CHECK(doc_start == std::vector<std::int32_t>{0, 0, 2, 2, 2, 5, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0});
    CHECK(positions == std::vector<std::int32_t>{0, 1, 0, 1, 2, 0, 0, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5});
    const std::span<const std::uint8_t> ragged(begins.data(), 17);
    CHECK_THROWS_AS(document_starts(ragged, 6, std::span(positions).first(17), std::span(doc_start).first(17)), Error);
    CHECK_THROWS_AS(document_starts(begins, 6, std::span(positions).first(12), doc_start), Error);
}

TEST_CASE("the real data splits and reads") {
    const fs::path data = shared_data();
    if (data.empty()) return;
    const Datasets parts = open_datasets({{(data / "tinyshakespeare.txt").string()}, {}, true, false}, 256, 256);
    CHECK(parts.train.at(0).count() == 1115394 - 111539);
    CHECK(parts.val.at(0).count() == 111539);
    const Loader train(parts.train, {.seq_len = 256, .vocab = 256, .shuffle = true, .seed = 1337}, 16);
    const Batch epoch = read(train, 0, train.sequences(), 256);
    std::vector<std::int32_t> file(static_cast<std::size_t>(train.sequences() * 256));
    parts.train.at(0).file->read(0, file, 256);
    std::vector<std::int32_t> seen = epoch.tokens;
    std::sort(seen.begin(), seen.end());
    std::sort(file.begin(), file.end());
    CHECK(seen == file);
}
