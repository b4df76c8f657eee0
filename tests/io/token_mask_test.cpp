// Masks of token shards: the file, and what a loader makes of it.
#include "src/io/token_mask.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "src/io/data_fingerprint.h"
#include "src/io/loader.h"
#include "tests/catch.h"
#include "tests/io/test_shards.h"

using namespace coda;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

constexpr std::uint8_t kTarget = 1, kBegin = 2;

void put_masked_shard(const fs::path& shard, std::int64_t first, const std::vector<std::uint8_t>& mask) {
    put_counting_shard(shard, first, static_cast<std::int64_t>(mask.size()));
    put(fs::path(shard).replace_extension(".mask"), mask_bytes(mask));
}

std::string with_word(std::string file, std::size_t index, std::int32_t value) {
    std::memcpy(file.data() + 4 * index, &value, sizeof(value));
    return file;
}

/// data.train and data.val are the same files.
TokenRanges ranges_of(const fs::path& pattern, std::int64_t seq_len) {
    return open_datasets({{pattern.string()}, {pattern.string()}, true, false}, seq_len, 100000).train;
}

}  // namespace

TEST_CASE("a mask that is not one of its shard is refused with file and reason") {
    const ScratchFolder scratch;
    const fs::path shard = scratch.path() / "a.bin", mask = scratch.path() / "a.mask";
    put_counting_shard(shard, 0, 5);
    const std::string good = mask_bytes({2, 1, 0, 3, 1});
    const auto refuse = [&](const std::string& bytes, const auto& reason) {
        put(mask, bytes);
        CHECK_THROWS_WITH(TokenFile(shard, 100), Contains("a.mask") && reason);
    };
    put(mask, good);
    CHECK(TokenFile(shard, 100).mask()->targets() == 2);  // tokens 1 and 4: 3 begins a conversation
    refuse("", Contains("0 bytes are too few"));
    refuse(good.substr(0, 1023), Contains("1023 bytes are too few"));
    refuse(with_word(good, 0, 20240520), Contains("20240520") && Contains("20251125 is expected"));
    refuse(with_word(good, 1, 2), Contains("version 2") && Contains("version 1 is expected"));
    refuse(with_word(good, 2, 0), Contains("0 tokens"));
    refuse(with_word(good, 2, -1), Contains("-1 tokens"));
    refuse(with_word(good, 2, 6), Contains("1029 bytes") && Contains("which makes 1030"));
    refuse(good + "x", Contains("has 1030 bytes") && Contains("which makes 1029"));
    refuse(mask_bytes({2, 1, 0, 3}), Contains("a mask of 4 tokens") && Contains("has 5"));
    refuse(mask_bytes({2, 1, 0, 4, 1}), Contains("token 3 has the byte 4"));
    refuse(mask_bytes({2, 1, 0, 3, 255}), Contains("token 4 has the byte 255"));

    fs::remove(mask);
    CHECK(TokenFile(shard, 100).mask() == nullptr);
    CHECK_FALSE(have_masks({shard.string()}));
    fs::create_directory(mask);
    CHECK_THROWS_WITH(TokenFile(shard, 100), Contains("a.mask"));
    fs::remove(mask);
    fs::create_symlink("nowhere", mask);
    CHECK_THROWS_WITH(TokenFile(shard, 100), Contains("a.mask"));
    CHECK(have_masks({shard.string()}));
    put(scratch.path() / "b.txt", "text");
    put(scratch.path() / "b.mask", "of another program");
    CHECK(TokenFile(scratch.path() / "b.txt", 256).mask() == nullptr);
}

TEST_CASE("a target counts where the mask counts the next token, unless that begins a conversation") {
    const ScratchFolder scratch;
    //                                                 0  1  2  3  4  5  6  7  8
    put_masked_shard(scratch.path() / "a.bin", 10, {2, 0, 1, 1, 3, 1, 0, 2, 3});
    const TokenRanges ranges = ranges_of(scratch.path() / "a.bin", 4);
    const TokenBatch batch = Loader(ranges, {.seq_len = 4, .vocab = 100, .bos = 12}, 1).batch(0, 2);
    CHECK(batch.tokens == std::vector<std::int32_t>{10, 11, 12, 13, 14, 15, 16, 17});
    CHECK(batch.targets == std::vector<std::int32_t>{-1, 12, 13, -1, 15, -1, -1, -1});
    CHECK(batch.begins == std::vector<std::uint8_t>{1, 0, 0, 0, 1, 0, 0, 1});  // not at the BOS, token 12
    CHECK(batch.valid == 3);

    std::vector<std::int32_t> positions(8), doc_start(8);
    document_starts(batch.begins, 4, positions, doc_start);
    CHECK(doc_start == std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 0, 3});
    CHECK(positions == std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 0});
}

TEST_CASE("shuffled sequences and files without a mask keep their own targets and documents") {
    const ScratchFolder scratch;
    std::vector<std::uint8_t> mask(4 * 6 + 1);
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<std::uint8_t>(i * i % 7 % 4);
    put_masked_shard(scratch.path() / "a.bin", 0, mask);
    put_counting_shard(scratch.path() / "b.bin", 1000, 4 * 5 + 1);
    const Loader loader(ranges_of(scratch.path() / "*.bin", 4),
                        {.seq_len = 4, .vocab = 100000, .shuffle = true, .seed = 3, .bos = 1002}, 1);
    REQUIRE(loader.sequences() == 11);
    const TokenBatch epochs = loader.batch(0, 22);
    std::int64_t valid = 0;
    for (std::size_t i = 0; i < epochs.tokens.size(); ++i) {
        const std::int32_t token = epochs.tokens[i];
        const bool masked = token < 1000;
        const std::uint8_t next = masked ? mask[static_cast<std::size_t>(token) + 1] : kTarget;
        const bool begins = masked ? (mask[static_cast<std::size_t>(token)] & kBegin) != 0 : token == 1002;
        CHECK(epochs.targets[i] == (next == kTarget ? token + 1 : -1));
        CHECK(epochs.begins[i] == (begins ? 1 : 0));
        valid += next == kTarget ? 1 : 0;
    }
    CHECK(epochs.valid == valid);
    // A step in the middle, as a resumed run reads it.
    const TokenBatch step = loader.batch(9, 4);
    CHECK(std::equal(step.targets.begin(), step.targets.end(), epochs.targets.begin() + 36));
    CHECK(std::equal(step.begins.begin(), step.begins.end(), epochs.begins.begin() + 36));
}

TEST_CASE("validation out of a file with a mask begins with a row") {
    const ScratchFolder scratch;
    put_masked_shard(scratch.path() / "a.bin", 0, std::vector<std::uint8_t>(8 * 20 + 1, kTarget));
    const Datasets parts = open_datasets({{(scratch.path() / "a.bin").string()}, {}, true, false}, 8, 1000);
    CHECK(parts.train.at(0).end == 145);  // the last tenth begins at token 145; rows end before 144
    CHECK(parts.train.at(0).sequences(8) == 18);
    CHECK(parts.val.at(0).begin == 144);
    CHECK(parts.val.at(0).sequences(8) == 2);
}

TEST_CASE("a fingerprint sees a mask that is new, gone or another") {
    const ScratchFolder scratch;
    const fs::path shard = scratch.path() / "a.bin", mask = scratch.path() / "a.mask";
    const auto now = [&] { return data_fingerprint(ranges_of(shard, 2)); };
    put_masked_shard(shard, 0, {2, 1, 1});
    const nlohmann::json masked = now();
    put(mask, mask_bytes({2, 1, 0}));
    const nlohmann::json other = now();
    fs::remove(mask);
    const nlohmann::json plain = now();
    CHECK_FALSE(plain[0].contains("mask"));
    CHECK(compare_data(masked, masked).changed.empty());
    CHECK_THAT(compare_data(masked, other).changed.at(0), Contains("a.bin has another mask"));
    CHECK_THAT(compare_data(masked, plain).changed.at(0), Contains("a.bin had a mask and has none"));
    CHECK_THAT(compare_data(plain, masked).changed.at(0), Contains("a.bin had no mask and has one"));
}
