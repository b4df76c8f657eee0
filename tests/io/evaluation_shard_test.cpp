// Evaluation shards: what is read is what was written, and every fault of a file is named.
#include "src/io/evaluation_shard.h"

#include <random>

#include "tests/catch.h"
#include "tests/io/test_evaluation_shards.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;

namespace {

constexpr std::int64_t kVocab = 100, kSeqLen = 8;

std::vector<ChoiceExample> two_examples() {
    return {{1, {5, 6, 7}, {{1, 2}, {3}, {4, 4, 4}, {99}}}, {0, {8}, {{10, 11}, {12}}}};
}

std::string fault_of(const std::string& bytes) {
    return message_of([&] { index_evaluation_shard(bytes_of(bytes), "eval.bin", kVocab, kSeqLen); });
}

/// The message for a shard of one example whose words `change` has changed.
template <class Change>
std::string fault_with(Change&& change) {
    Words words = example_words(two_examples()[0], 0);
    change(words);
    return fault_of(evaluation_bytes(words, 1));
}

}  // namespace

TEST_CASE("an evaluation shard gives back its examples") {
    const ScratchFolder folder;
    put(folder.path() / "choices_val.bin", evaluation_bytes(two_examples()));
    const EvaluationShard shard(folder.path() / "choices_val.bin", kVocab, kSeqLen);
    CHECK(shard.name() == "choices_val");
    REQUIRE(shard.examples() == 2);
    const std::vector<ChoiceExample> written = two_examples();
    for (std::size_t i = 0; i < 2; ++i) {
        const EvaluationExample read = shard.example(static_cast<std::int64_t>(i));
        CHECK(read.label == written[i].label);
        CHECK(read.context == std::vector<std::int32_t>(written[i].context.begin(), written[i].context.end()));
        REQUIRE(read.completions.size() == written[i].completions.size());
        for (std::size_t c = 0; c < read.completions.size(); ++c) {
            const Words& completion = written[i].completions[c];
            CHECK(read.completions[c] == std::vector<std::int32_t>(completion.begin(), completion.end()));
        }
    }
}

TEST_CASE("a bad header of an evaluation shard is named") {
    const std::string good = evaluation_bytes(two_examples());
    CHECK(fault_of(good) == "");
    CHECK_THAT(fault_of(""), Contains("eval.bin: 0 bytes"));
    CHECK_THAT(fault_of(good.substr(0, 1023)), Contains("1023 bytes"));
    const auto with_header = [&](std::size_t word, std::int32_t value) {
        std::string bytes = good;
        std::memcpy(bytes.data() + 4 * word, &value, 4);
        return fault_of(bytes);
    };
    CHECK_THAT(with_header(0, 20240520), Contains("20240520") && Contains("20240522"));
    CHECK_THAT(with_header(1, 2), Contains("version 2"));
    CHECK_THAT(with_header(2, 0), Contains("0 examples"));
    CHECK_THAT(with_header(2, -1), Contains("-1 examples"));
    CHECK_THAT(with_header(2, 3), Contains("example 2") && Contains("the file ends"));
    CHECK_THAT(with_header(2, 1), Contains("bytes follow the 1 examples"));
}

TEST_CASE("a fault of an example is named with the example") {
    CHECK(fault_with([](Words&) {}) == "");
    // 65535, bytes, index, label, completions, |context| at word 5, |completion 0| at 9, at 12, 14, 18.
    CHECK_THAT(fault_with([](Words& w) { w[0] = 1; }), Contains("example 0 (at byte 1024)") && Contains("65535"));
    CHECK_THAT(fault_with([](Words& w) { w[1] = 41; }), Contains("41 bytes"));
    CHECK_THAT(fault_with([](Words& w) { w[1] = 8; }), Contains("8 bytes"));
    CHECK_THAT(fault_with([](Words& w) { w[1] = 60000; }), Contains("60000 bytes"));
    CHECK_THAT(fault_with([](Words& w) { w[1] -= 2; }), Contains("completion 3 does not fit"));
    CHECK_THAT(fault_with([](Words& w) { w[2] = 1; }), Contains("says that it is example 1"));
    CHECK_THAT(fault_with([](Words& w) { w[3] = 4; }), Contains("4 of 4"));
    CHECK_THAT(fault_with([](Words& w) { w[4] = 1; }), Contains("1 completions"));
    CHECK_THAT(fault_with([](Words& w) { w[4] = 3; }), Contains("4 of its 40 bytes are left"));
    CHECK_THAT(fault_with([](Words& w) { w[4] = 5; }), Contains("completion 4 does not fit"));
    CHECK_THAT(fault_with([](Words& w) { w[5] = 500; }), Contains("the context does not fit"));
    CHECK_THAT(fault_with([](Words& w) { w[7] = 100; }), Contains("the context has the token id 100"));
    CHECK_THAT(fault_with([](Words& w) { w.back() = 300; }), Contains("completion 3 has the token id 300"));

    const auto fault_of_example = [](const ChoiceExample& example) { return fault_of(evaluation_bytes({example})); };
    CHECK_THAT(fault_of_example({0, {}, {{1}, {2}}}), Contains("the context is empty"));
    CHECK_THAT(fault_of_example({0, {1}, {{1}, {}}}), Contains("completion 1 is empty"));
    CHECK(fault_of_example({0, {1}, {{1}, Words(8, 2)}}) == "");
    CHECK_THAT(fault_of_example({0, {1}, {{1}, Words(9, 2)}}), Contains("9 tokens, more than training.seq_len 8"));
    CHECK(fault_of_example({0, Words(50, 3), {{1}, {2}}}) == "");
}

TEST_CASE("a damaged evaluation shard is refused or read, never read beyond its end") {
    // The bytes lie in a vector of exactly their size, so that a sanitizer sees a read beyond it.
    const std::string good = evaluation_bytes(two_examples());
    for (std::size_t length = 0; length < good.size(); ++length) CHECK(fault_of(good.substr(0, length)) != "");
    std::mt19937_64 random(1);
    int accepted = 0;
    for (int trial = 0; trial < 20000; ++trial) {
        std::vector<char> bytes(good.begin(), good.end());
        for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
            bytes[1024 + random() % (bytes.size() - 1024)] = static_cast<char>(random() % 4 == 0 ? 255 : random() % 12);
        }
        accepted += message_of([&] {
                        index_evaluation_shard(std::as_bytes(std::span(bytes)), "eval.bin", kVocab, kSeqLen);
                    }) == "";
    }
    CHECK(accepted > 100);
    CHECK(accepted < 19900);
}

TEST_CASE("evaluation files are found by globs and told apart by name") {
    const ScratchFolder folder;
    const std::string bytes = evaluation_bytes(two_examples());
    for (const char* name : {"b_val.bin", "a_val.bin"}) put(folder.path() / name, bytes);
    const auto open = [&](const std::vector<std::string>& patterns) {
        std::vector<std::string> paths;
        for (const std::string& pattern : patterns) paths.push_back((folder.path() / pattern).string());
        std::vector<std::string> names;
        for (const EvaluationShard& shard : open_evaluation_shards(paths, kVocab, kSeqLen))
            names.push_back(shard.name());
        return names;
    };
    CHECK(open({}).empty());
    CHECK(open({"*_val.bin"}) == std::vector<std::string>{"a_val", "b_val"});
    CHECK_THAT(message_of([&] { open({"none*.bin"}); }), Contains("none*.bin"));
    CHECK_THAT(message_of([&] { open({"a_val.bin", "*_val.bin"}); }), Contains("the same name"));
}
