#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "src/core/interrupt.h"
#include "src/io/output_file.h"
#include "src/io/tokens.h"
#include "src/tokenize/run.h"
#include "src/tokenize/tokenizer.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTokensAtATime = std::int64_t{1} << 16;

/// Standard output, or a file that is written aside and then gets its name.
class TextOutput {
  public:
    TextOutput(const std::string& path, bool overwrite, const InputFiles& inputs) {
        if (path.empty()) return;
        require_output_file("--out", path, overwrite, inputs);
        file_.emplace(path);
    }

    void write(std::string_view text) {
        if (file_) return file_->write(bytes_of(text));
        while (!text.empty()) {
            const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
            if (written < 0 && errno == EINTR) continue;
            require(written >= 0, "write to standard output: ", std::generic_category().message(errno));
            text.remove_prefix(static_cast<std::size_t>(written));
        }
    }

    void finish() {
        if (file_) file_->finish();
    }

  private:
    std::optional<ReplacedFile> file_;
};

}  // namespace

void decode(const TokenizeOptions& options) {
    const Tokenizer tokenizer(read_tokenizer(options.tokenizer));
    const std::int64_t vocab = tokenizer.vocab_size();
    std::vector<bool> skipped(static_cast<std::size_t>(vocab));
    for (std::size_t id = 0; options.skip_special && id < skipped.size(); ++id) {
        skipped[id] = tokenizer.is_special(static_cast<std::uint32_t>(id));
    }
    const std::vector<fs::path> shards = expand_paths(options.inputs);
    InputFiles inputs;
    inputs.add(options.tokenizer);
    for (const fs::path& shard : shards) inputs.add(shard);
    TextOutput output(options.out, options.overwrite, inputs);
    std::vector<std::int32_t> tokens;
    std::string text;
    TokenStream stream(tokenizer);
    for (const fs::path& path : shards) {
        require(path.extension() != ".txt", path.string(), ": not a shard of tokens but a text");
        const TokenFile file(path, vocab);
        for (std::int64_t first = 0; first < file.count(); first += kTokensAtATime) {
            tokens.resize(static_cast<std::size_t>(std::min(kTokensAtATime, file.count() - first)));
            file.read(first, tokens, vocab);
            text.clear();
            for (const std::int32_t token : tokens) {
                const auto id = static_cast<std::uint32_t>(token);
                if (!skipped[id]) text += stream.add(id);
            }
            output.write(text);
            if (interrupted()) throw InterruptedError("interrupted");
        }
    }
    output.finish();
}

}  // namespace coda
