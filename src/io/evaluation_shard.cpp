#include "src/io/evaluation_shard.h"

#include <algorithm>
#include <cstring>

#include "src/io/shard_header.h"
#include "src/io/tokens.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

constexpr ShardFormat kFormats[] = {{20240522, 1, 0}};
constexpr ShardKind kKind{kFormats, "an evaluation shard", "examples", ""};
constexpr std::int64_t kStartOfExample = 65535;

/// Reads the words of one example, bytes [begin, end) of the file, and never beyond them.
class Words {
  public:
    Words(std::span<const std::byte> file, std::int64_t begin, std::int64_t end) : file_(file), at_(begin), end_(end) {}

    bool has(std::int64_t words) const { return words <= (end_ - at_) / kBytes; }
    std::int64_t left() const { return end_ - at_; }

    /// The next word; has(1) must hold.
    std::int64_t next() {
        std::uint16_t word;
        std::memcpy(&word, file_.data() + at_, sizeof word);
        at_ += kBytes;
        return word;
    }

    /// A length and as many tokens; false if they do not fit.
    bool tokens(std::vector<std::int32_t>& out) {
        out.clear();
        if (!has(1)) return false;
        const std::int64_t length = next();
        if (!has(length)) return false;
        for (std::int64_t i = 0; i < length; ++i) out.push_back(static_cast<std::int32_t>(next()));
        return true;
    }

  private:
    static constexpr std::int64_t kBytes = 2;

    std::span<const std::byte> file_;
    std::int64_t at_, end_;
};

/// What is wrong with the tokens of a part of an example; empty if nothing is.
std::string fault_of(const std::vector<std::int32_t>& tokens, std::int64_t vocab) {
    if (tokens.empty()) return "is empty";
    const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t id) { return id >= vocab; });
    if (bad == tokens.end()) return "";
    return text("has the token id ", *bad, ", but model.vocab_size is ", vocab,
                "; was the file made with another tokenizer?");
}

/// Checks the example that begins at `begin` and returns its bytes.
std::int64_t check_example(std::span<const std::byte> file, std::int64_t begin, std::int64_t index,
                           const std::string& name, std::int64_t vocab, std::int64_t seq_len) {
    const auto where = [&] { return text(name, ": example ", index, " (at byte ", begin, ")"); };
    const auto size = static_cast<std::int64_t>(file.size());
    Words head(file, begin, size);
    require(head.has(5), where(), ": the file ends there; was it cut off or written only in part?");
    const std::int64_t start = head.next();
    require(start == kStartOfExample, where(), ": begins with ", start, " where the mark ", kStartOfExample,
            " is expected");
    const std::int64_t bytes = head.next();
    require(bytes % 2 == 0 && bytes >= 10, where(), ": says that it has ", bytes, " bytes; an even number of at least ",
            "10 is expected");
    require(bytes <= size - begin, where(), ": has ", bytes, " bytes, but the file ends after ", size - begin,
            "; was it cut off or written only in part?");

    Words words(file, begin, begin + bytes);
    words.next();
    words.next();
    const std::int64_t number = words.next(), label = words.next(), completions = words.next();
    require(number == index, where(), ": says that it is example ", number);
    require(completions >= 2, where(), ": has ", completions, " completions; at least 2 are expected");
    require(label < completions, where(), ": the right completion is said to be ", label, " of ", completions);
    std::vector<std::int32_t> tokens;
    for (std::int64_t part = 0; part <= completions; ++part) {
        const auto what = [&] { return part == 0 ? std::string("the context") : text("completion ", part - 1); };
        require(words.tokens(tokens), where(), ": ", what(), " does not fit into the example's ", bytes, " bytes");
        const std::string fault = fault_of(tokens, vocab);
        require(fault.empty(), where(), ": ", what(), " ", fault);
        require(part == 0 || static_cast<std::int64_t>(tokens.size()) <= seq_len, where(), ": ", what(), " has ",
                tokens.size(), " tokens, more than training.seq_len ", seq_len);
    }
    require(words.left() == 0, where(), ": ", words.left(), " of its ", bytes, " bytes are left after the completions");
    return bytes;
}

}  // namespace

std::vector<std::int64_t> index_evaluation_shard(std::span<const std::byte> file, const std::string& name,
                                                 std::int64_t vocab, std::int64_t seq_len) {
    const std::int64_t count = read_shard_header(file, static_cast<std::int64_t>(file.size()), name, kKind).count;
    std::vector<std::int64_t> first_byte;
    std::int64_t at = kShardHeaderBytes;
    for (std::int64_t index = 0; index < count; ++index) {
        first_byte.push_back(at);
        at += check_example(file, at, index, name, vocab, seq_len);
    }
    require(at == static_cast<std::int64_t>(file.size()), name, ": ", static_cast<std::int64_t>(file.size()) - at,
            " bytes follow the ", count, " examples that its header says");
    return first_byte;
}

EvaluationShard::EvaluationShard(const fs::path& path, std::int64_t vocab, std::int64_t seq_len)
    : path_(path), name_(path.stem().string()), file_(read_file(path)) {
    first_byte_ = index_evaluation_shard(bytes_of(file_), path_.string(), vocab, seq_len);
}

EvaluationExample EvaluationShard::example(std::int64_t index) const {
    const std::int64_t begin = first_byte_.at(static_cast<std::size_t>(index));
    Words words(bytes_of(file_), begin, static_cast<std::int64_t>(file_.size()));
    for (int skipped = 0; skipped < 3; ++skipped) words.next();
    EvaluationExample example;
    example.label = words.next();
    example.completions.resize(static_cast<std::size_t>(words.next()));
    words.tokens(example.context);
    for (std::vector<std::int32_t>& completion : example.completions) words.tokens(completion);
    return example;
}

std::vector<EvaluationShard> open_evaluation_shards(const std::vector<std::string>& patterns, std::int64_t vocab,
                                                    std::int64_t seq_len) {
    std::vector<EvaluationShard> shards;
    for (const fs::path& path : expand_paths(patterns)) {
        EvaluationShard shard(path, vocab, seq_len);
        for (const EvaluationShard& other : shards) {
            require(other.name() != shard.name(), "evaluation.files: ", other.path().string(), " and ",
                    shard.path().string(), " have the same name, by which the log tells them apart; rename one");
        }
        shards.push_back(std::move(shard));
    }
    return shards;
}

}  // namespace coda
