// Runs the fuzz targets without a fuzzer: every file of corpus.tar.xz unchanged, and seeded random mutations of the
// files that make_corpus.py writes. TARGET/found holds what libFuzzer found to reach code that those files do not reach
// (tools/campaign/fuzz).
#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "src/io/files.h"
#include "tests/catch.h"
#include "tests/fuzz/targets.h"

using namespace coda;
namespace fs = std::filesystem;

namespace {

using Target = std::function<void(std::span<const std::byte>)>;

/// The files of `folder` of the corpora, sorted; none if there is no such folder.
std::vector<fs::path> corpus(const std::string& folder) {
    const fs::path path = fs::path(CODA_CORPUS) / folder;
    std::vector<fs::path> files;
    if (!fs::exists(path)) return files;
    for (const auto& entry : fs::directory_iterator(path)) {
        if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
}

/// Whether the target accepted the input; anything thrown except Error fails the test.
bool accepted(const Target& target, std::string_view input, const std::string& origin) {
    // A buffer of the exact size, so that a sanitizer sees a read one byte beyond it.
    const std::vector<std::byte> bytes(bytes_of(input).begin(), bytes_of(input).end());
    try {
        target(bytes);
        return true;
    } catch (const Error&) {
        return false;
    } catch (const std::exception& error) {
        FAIL(origin << ": " << error.what());
    }
    return false;
}

/// One to four small edits: flip a bit, set a byte, cut, repeat or swap a piece, or insert a meaningful token.
std::string mutated(std::string input, std::mt19937& random) {
    static const std::vector<std::string> kTokens{"-1",
                                                  "0",
                                                  "18446744073709551615",
                                                  "9223372036854775808",
                                                  "1e999",
                                                  "[",
                                                  "{",
                                                  "\"",
                                                  "]",
                                                  "}",
                                                  "null",
                                                  "\\u0000",
                                                  "\xff",
                                                  "F16",
                                                  "I64",
                                                  ","};
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % (n == 0 ? 1 : n)); };
    for (std::size_t edit = 0, edits = 1 + below(4); edit < edits; ++edit) {
        const std::size_t at = below(input.size()), length = below(std::min<std::size_t>(input.size() - at, 32) + 1);
        switch (below(6)) {
            case 0:
                if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
                break;
            case 1:
                if (!input.empty()) input[at] = static_cast<char>(below(256));
                break;
            case 2: input.erase(at, length); break;
            case 3: input.insert(at, std::string(input, at, length)); break;
            case 4: input.replace(at, length, kTokens[below(kTokens.size())]); break;
            default: input.resize(at);
        }
    }
    return input;
}

/// Corpus files named valid* must be accepted, all others refused; of what was found, neither is known.
void run(const std::string& name, const Target& target, int mutations) {
    const std::vector<fs::path> files = corpus(name);
    REQUIRE(files.size() >= 4);
    std::mt19937 random(20240520);
    for (const fs::path& file : files) {
        const std::string input = read_file(file);
        INFO(file);
        CHECK(accepted(target, input, file.string()) == file.filename().string().starts_with("valid"));
        for (int i = 0; i < mutations; ++i) {
            accepted(target, mutated(input, random), text("mutation ", i, " of ", file.string()));
        }
    }
    for (const fs::path& file : corpus(name + "/found")) accepted(target, read_file(file), file.string());
}

}  // namespace

TEST_CASE("the safetensors reader withstands its corpus and mutations") { run("safetensors", fuzz::safetensors, 3000); }

TEST_CASE("the reader of a safetensors index withstands its corpus and mutations") {
    run("safetensors_index", fuzz::safetensors_index, 300);
}

TEST_CASE("the reader of 4-bit matrices withstands its corpus and mutations") {
    run("int4_matrix", fuzz::int4_matrix, 300);
}

TEST_CASE("the shard reader withstands its corpus and mutations") { run("shard", fuzz::shard, 3000); }

TEST_CASE("the reader of masks withstands its corpus and mutations") { run("token_mask", fuzz::token_mask, 3000); }

TEST_CASE("the evaluation shard reader withstands its corpus and mutations") {
    run("evaluation_shard", fuzz::evaluation_shard, 3000);
}

TEST_CASE("the reader of a checkpoint's meta.json withstands its corpus and mutations") {
    run("checkpoint_meta", fuzz::checkpoint_meta, 300);
}

TEST_CASE("the configuration reader withstands its corpus and mutations") { run("config", fuzz::config, 1000); }

TEST_CASE("the reader of a Hugging Face config.json withstands its corpus and mutations") {
    run("hf_config", fuzz::hf_config, 1000);
}

TEST_CASE("the resumed log withstands its corpus and mutations") { run("run_log", fuzz::run_log, 300); }

TEST_CASE("the reader of requests withstands its corpus and mutations") { run("request", fuzz::request, 1000); }

TEST_CASE("chat templates withstand their corpus and mutations") { run("chat_template", fuzz::chat_template, 1000); }

#ifdef CODA_TOKENIZER
TEST_CASE("the tokenizer.json reader withstands its corpus and mutations") { run("tokenizer", fuzz::tokenizer, 300); }

TEST_CASE("the reader of JSON lines withstands its corpus and mutations") { run("json_line", fuzz::json_line, 3000); }

TEST_CASE("the reader of conversations withstands its corpus and mutations") {
    run("conversation", fuzz::conversation, 3000);
}
#endif
