#include "src/tokenize/inputs.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include "src/core/errors.h"
#include "src/core/printable.h"
#include "src/io/tokens.h"

namespace coda {

namespace fs = std::filesystem;

std::vector<std::uint32_t> marks(const Tokenizer& tokenizer, const char* flag, const std::string& given,
                                 const std::vector<std::int32_t>& automatic) {
    if (given == "none") return {};
    if (given == "auto") return {automatic.begin(), automatic.end()};
    const auto id = tokenizer.id_of(given);
    if (!id) throw UsageError(text(flag, " ", given, ": ", tokenizer.file(), " has no such token"));
    return {*id};
}

TokenizerFiles files_of(const Tokenizer& tokenizer) {
    return {tokenizer.file(), tokenizer.document(), [&](const std::string& token) { return tokenizer.id_of(token); }};
}

std::vector<std::string> expand_inputs(const std::vector<std::string>& patterns) {
    std::vector<std::string> inputs;
    for (const std::string& pattern : patterns) {
        if (pattern == "-") {
            inputs.push_back(pattern);
            continue;
        }
        for (const fs::path& path : expand_paths({pattern})) inputs.push_back(path.string());
    }
    if (std::count(inputs.begin(), inputs.end(), "-") > 1) throw UsageError("standard input (-) can be read only once");
    return inputs;
}

std::int64_t total_bytes(const std::vector<std::string>& inputs) {
    std::int64_t total = 0;
    for (const std::string& input : inputs) {
        std::error_code error;
        const auto size = fs::file_size(input, error);
        if (error) return 0;
        total += static_cast<std::int64_t>(size);
    }
    return total;
}

void require_vocab(const Tokenizer& tokenizer, const TokenizeOptions& options) {
    require(options.vocab == 0 || tokenizer.vocab_size() <= options.vocab, options.tokenizer, ": its ids go up to ",
            tokenizer.vocab_size() - 1, ", beyond --vocab ", options.vocab,
            "; the model needs a vocab_size of at least ", tokenizer.vocab_size());
}

std::size_t thread_count(const TokenizeOptions& options) {
    return options.threads > 0 ? options.threads : std::max<std::size_t>(1, std::thread::hardware_concurrency());
}

std::int64_t bytes_in_work(std::size_t threads) {
    return (std::int64_t{4} << 20) + (std::int64_t{1} << 20) * static_cast<std::int64_t>(threads);
}

void say(const std::string& line) { std::fprintf(stderr, "coda_tokenize: %s\n", printable(line).c_str()); }

}  // namespace coda
