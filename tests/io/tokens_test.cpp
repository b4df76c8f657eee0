#include "src/io/tokens.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "tests/catch.h"
#include "tests/io/test_shards.h"

using namespace coda;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

std::vector<std::int32_t> tokens_of(const TokenView& view, std::int64_t vocab) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(view.count));
    read_tokens(view, 0, tokens, vocab, "the shard");
    return tokens;
}

/// `shard` with its int32 header word `index` set to `value`.
std::string with_word(std::string shard, std::size_t index, std::int32_t value) {
    std::memcpy(shard.data() + 4 * index, &value, sizeof(value));
    return shard;
}

}  // namespace

TEST_CASE("shards of both kinds and text give their tokens") {
    const std::string narrow = shard_bytes<std::uint16_t>({3, 1, 65535});
    CHECK(tokens_of(parse_shard(bytes_of(narrow), "narrow"), 65536) == std::vector<std::int32_t>{3, 1, 65535});
    const std::string wide = shard_bytes<std::uint32_t>({7, 128000, 0});
    CHECK(tokens_of(parse_shard(bytes_of(wide), "wide"), 128256) == std::vector<std::int32_t>{7, 128000, 0});

    std::vector<std::int32_t> middle(2);
    read_tokens(parse_shard(bytes_of(wide), "wide"), 1, middle, 128256, "wide");
    CHECK(middle == std::vector<std::int32_t>{128000, 0});
}

TEST_CASE("a shard that is not one is refused with the reason") {
    const std::string good = shard_bytes<std::uint16_t>({1, 2, 3});
    const auto refuse = [](const std::string& bytes, const auto& reason) {
        CHECK_THROWS_WITH(parse_shard(bytes_of(bytes), "data/x.bin"), Contains("data/x.bin"));
        CHECK_THROWS_WITH(parse_shard(bytes_of(bytes), "data/x.bin"), reason);
    };
    refuse("", Contains("empty"));
    refuse(good.substr(0, 1023), Contains("1023 bytes") && Contains("header"));
    refuse(with_word(good, 0, 12345), Contains("12345") && Contains("20240520") && Contains("20240801"));
    refuse(with_word(good, 1, 2), Contains("version 2") && Contains("version 1 is expected"));
    refuse(with_word(good, 0, 20240801), Contains("version 7 is expected"));
    refuse(with_word(good, 2, 0), Contains("0 tokens"));
    refuse(with_word(good, 2, -5), Contains("-5 tokens"));
    refuse(good.substr(0, good.size() - 1), Contains("1029 bytes") && Contains("1030"));
    refuse(good + "x", Contains("1031 bytes") && Contains("1030"));
    refuse(with_word(good, 2, 2147483647), Contains("2147483647 tokens"));
}

TEST_CASE("an id outside the vocabulary is named with its place") {
    const std::string shard = shard_bytes<std::uint32_t>({5, 9, 10, 4000000000u});
    const TokenView view = parse_shard(bytes_of(shard), "x.bin");
    std::vector<std::int32_t> out(2);
    read_tokens(view, 0, out, 10, "x.bin");
    CHECK_THROWS_WITH(read_tokens(view, 1, out, 10, "x.bin"),
                      Contains("x.bin") && Contains("token 2 has id 10") && Contains("vocab_size is 10"));
    CHECK_THROWS_WITH(read_tokens(view, 2, out, 128256, "x.bin"), Contains("token 3 has id 4000000000"));
}

TEST_CASE("a range outside the file is refused") {
    const TokenView view{bytes_of("abc").data(), 3, 1};
    std::vector<std::int32_t> out(2);
    for (const std::int64_t first : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{4}, INT64_MAX, INT64_MIN})
        CHECK_THROWS_WITH(read_tokens(view, first, out, 256, "t.txt"), Contains("t.txt") && Contains("outside"));
}

TEST_CASE("a token file is a shard or, by its name, text, and is checked when it is opened") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    put(folder / "a.txt", "hello");
    put(folder / "b.bin", shard_bytes<std::uint16_t>({1, 2, 300}));
    const TokenFile text_file(folder / "a.txt", 256);
    std::vector<std::int32_t> out(2);
    text_file.read(3, out, 256);
    CHECK(out == std::vector<std::int32_t>{'l', 'o'});
    CHECK(text_file.count() == 5);
    CHECK(TokenFile(folder / "b.bin", 301).count() == 3);

    CHECK_THROWS_WITH(TokenFile(folder / "b.bin", 300), Contains("b.bin") && Contains("token 2 has id 300"));
    CHECK_THROWS_WITH(TokenFile(folder / "c.bin", 300), Contains("c.bin") && Contains("No such file"));
    CHECK_THROWS_WITH(TokenFile(folder, 300), Contains("not a regular file"));
}

TEST_CASE("an unreadable token file is named") {
    const ScratchFolder scratch;
    const fs::path file = scratch.path() / "secret.bin";
    put(file, shard_bytes<std::uint16_t>({1}));
    fs::permissions(file, fs::perms::none);
    if (::access(file.c_str(), R_OK) == 0) return;  // the superuser can read everything
    CHECK_THROWS_WITH(TokenFile(file, 300), Contains("secret.bin") && Contains("Permission denied"));
}

TEST_CASE("offsets beyond 4 GiB are right") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "large.txt";
    constexpr std::int64_t size = (std::int64_t{5} << 30) + 3;  // sparse: takes no disk space
    put(path, "a");
    fs::resize_file(path, size);
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(size - 2) << "yz";
    const TokenFile file(path, 256);
    std::vector<std::int32_t> out(3);
    file.read(size - 3, out, 256);
    CHECK(file.count() == size);
    CHECK(out == std::vector<std::int32_t>{0, 'y', 'z'});
}

TEST_CASE("patterns name files in order") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    for (const char* name : {"train_10.bin", "train_02.bin", "other.bin", "odd[1].txt"}) put(folder / name, "x");
    const auto names = [&](std::vector<std::string> patterns) {
        for (std::string& pattern : patterns) pattern = (folder / pattern).string();
        std::vector<std::string> found;
        for (const fs::path& path : expand_paths(patterns)) found.push_back(path.filename().string());
        return found;
    };
    CHECK(names({"train_*.bin"}) == std::vector<std::string>{"train_02.bin", "train_10.bin"});
    CHECK(names({"train_1?.bin", "other.bin", "odd[1].txt"}) ==
          std::vector<std::string>{"train_10.bin", "other.bin", "odd[1].txt"});
    CHECK(names({"train_[0]*"}) == std::vector<std::string>{"train_02.bin"});
    std::vector<std::string> many;
    for (int i = 90; i >= 10; --i) put(folder / text("many_", i), "x");
    for (int i = 10; i <= 90; ++i) many.push_back(text("many_", i));
    CHECK(names({"many_*"}) == many);
    CHECK_THROWS_WITH(names({"other.bin", "none_*.bin"}), Contains("none_*.bin") && Contains("no file matches"));
    CHECK_THROWS_WITH(names({"none.bin"}), Contains("none.bin"));
}

TEST_CASE("the real token files open") {
    const fs::path data = shared_data();
    if (data.empty()) return;
    CHECK(TokenFile(data / "tinyshakespeare_gpt2_train.bin", 50257).count() == 301945);
    CHECK(TokenFile(data / "tinyshakespeare_llama3_train.bin", 128256).count() == 270289);
    CHECK(TokenFile(data / "tinyshakespeare.txt", 256).count() == 1115394);
    CHECK_THROWS_WITH(TokenFile(data / "tinyshakespeare_llama3_train.bin", 50257), Contains("another tokenizer"));
}
