#include "src/io/tokens.h"

#include <glob.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <system_error>

namespace coda {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read unchanged");

constexpr ShardFormat kFormats[] = {kNarrowShard, kWideShard};
constexpr ShardKind kKind{kFormats, "a token shard", "tokens", "; a text file must be named .txt"};

/// Widens the values of type Stored at `data` into `out`; false when one is >= vocab.
template <class Stored>
bool widen(const std::byte* data, std::span<std::int32_t> out, std::int64_t vocab) {
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
        Stored value;
        std::memcpy(&value, data + i * sizeof(Stored), sizeof(Stored));
        largest = std::max<std::uint32_t>(largest, value);
        out[i] = static_cast<std::int32_t>(value);
    }
    return out.empty() || largest < vocab;
}

void require_range(std::int64_t count, std::int64_t first, std::size_t tokens, const std::string& name) {
    const auto wanted = static_cast<std::int64_t>(tokens);
    require(first >= 0 && first <= count && wanted <= count - first, name, ": tokens [", first, ", ", first, " + ",
            wanted, ") are outside the file's ", count);
}

/// Tokens of `bytes_each` bytes at `data`, the first of which is token `first` of the file; see read_tokens.
void widen_tokens(const std::byte* data, std::int64_t bytes_each, std::int64_t first, std::span<std::int32_t> out,
                  std::int64_t vocab, const std::string& name) {
    const bool valid = bytes_each == 1   ? widen<std::uint8_t>(data, out, vocab)
                       : bytes_each == 2 ? widen<std::uint16_t>(data, out, vocab)
                                         : widen<std::uint32_t>(data, out, vocab);
    if (valid) return;
    const auto bad = std::find_if(out.begin(), out.end(),
                                  [vocab](std::int32_t id) { return static_cast<std::uint32_t>(id) >= vocab; });
    throw Error(text(name, ": token ", first + (bad - out.begin()), " has id ", static_cast<std::uint32_t>(*bad),
                     ", but model.vocab_size is ", vocab, "; was the file made with another tokenizer?"));
}

/// The layout of a shard that begins with `head`.
TokenLayout shard_layout(std::span<const std::byte> head, std::int64_t size, const std::string& name) {
    require(size > 0, name, ": the file is empty");
    const ShardHeader header = read_shard_header(head, size, name, kKind);
    return {kShardHeaderBytes, header.count, header.bytes_each};
}

/// Matches of a glob(3) pattern, sorted; empty when there are none.
std::vector<fs::path> matches(const std::string& pattern) {
    glob_t found{};
    const int status = ::glob(pattern.c_str(), GLOB_TILDE | GLOB_NOSORT, nullptr, &found);
    std::vector<fs::path> paths;
    if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    std::sort(paths.begin(), paths.end());
    return paths;
}

}  // namespace

TokenView parse_shard(std::span<const std::byte> file, const std::string& name) {
    const TokenLayout layout = shard_layout(file, static_cast<std::int64_t>(file.size()), name);
    return {file.data() + layout.begin, layout.count, layout.bytes_each};
}

void read_tokens(const TokenView& view, std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab,
                 const std::string& name) {
    require_range(view.count, first, out.size(), name);
    widen_tokens(view.data + first * view.bytes_each, view.bytes_each, first, out, vocab, name);
}

TokenFile::TokenFile(const fs::path& path, std::int64_t vocab) : name_(path.string()), file_(path) {
    if (path.extension() == ".txt") {
        require(file_.bytes() > 0, name_, ": the file is empty");
        layout_ = {0, file_.bytes(), 1};
    } else {
        std::vector<std::byte> head(static_cast<std::size_t>(std::min(file_.bytes(), kShardHeaderBytes)));
        file_.read_at(0, head);
        layout_ = shard_layout(head, file_.bytes(), name_);
        const fs::path mask = mask_path(path);
        if (is_name_taken(mask)) mask_.emplace(mask, layout_.count);
    }
    std::vector<std::int32_t> first_tokens(static_cast<std::size_t>(std::min(layout_.count, kCheckedTokens)));
    read(0, first_tokens, vocab);
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab) const {
    require_range(layout_.count, first, out.size(), name_);
    std::vector<std::byte> stored(out.size() * static_cast<std::size_t>(layout_.bytes_each));
    file_.read_at(layout_.begin + first * layout_.bytes_each, stored);
    widen_tokens(stored.data(), layout_.bytes_each, first, out, vocab, name_);
}

std::vector<fs::path> expand_paths(const std::vector<std::string>& patterns,
                                   const std::function<std::string(const std::string&)>& advice) {
    std::vector<fs::path> paths;
    for (const std::string& pattern : patterns) {
        std::error_code ignored;
        if (fs::exists(pattern, ignored)) {
            paths.emplace_back(pattern);
            continue;
        }
        const std::vector<fs::path> found = matches(pattern);
        require(!found.empty(), "no file matches '", pattern, "' (in ", fs::current_path().string(), ")",
                advice ? advice(pattern) : "");
        paths.insert(paths.end(), found.begin(), found.end());
    }
    return paths;
}

bool have_masks(const std::vector<std::string>& patterns) {
    try {
        const std::vector<std::filesystem::path> files = expand_paths(patterns);
        return std::any_of(files.begin(), files.end(), [](const auto& file) { return is_name_taken(mask_path(file)); });
    } catch (const Error&) {  // said where the data are opened
        return false;
    }
}

}  // namespace coda
