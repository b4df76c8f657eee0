// Token files: llm.c shards and plain text.
//
//   shard  1024-byte header of 256 int32, then the tokens, little-endian:
//          {20240520, 1, count} uint16 tokens, or {20240801, 7, count} uint32 tokens; the other header words are unused
//   .txt   every byte is a token (vocabulary 256)
//
// Files are read window by window, never as a whole; offsets are 64-bit. Tokens are checked against the vocabulary
// whenever they are read, and the first kCheckedTokens of every file already when it is opened, so a wrong tokenizer
// shows before the first step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/io/files.h"
#include "src/io/shard_header.h"
#include "src/io/token_mask.h"

namespace coda {

/// Shards of uint16 and of uint32 tokens.
inline constexpr ShardFormat kNarrowShard{20240520, 1, 2}, kWideShard{20240801, 7, 4};
inline constexpr std::int64_t kCheckedTokens = std::int64_t{1} << 20;

/// Where the tokens of a file lie.
struct TokenLayout {
    std::int64_t begin = 0;  // byte of the first token
    std::int64_t count = 0;
    std::int64_t bytes_each = 1;
};

/// A view of the tokens in a file's bytes, which must outlive it.
struct TokenView {
    const std::byte* data = nullptr;
    std::int64_t count = 0;
    std::int64_t bytes_each = 1;  // 1, 2 or 4, unsigned, little-endian
};

/// The tokens of a shard, given as its bytes. Throws Error as read_shard_header does.
TokenView parse_shard(std::span<const std::byte> file, const std::string& name);

/// Tokens [first, first + out.size()) of `view`. Throws Error with `name`, the position and the id when an id is >=
/// vocab, and when the range is outside the view.
void read_tokens(const TokenView& view, std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab,
                 const std::string& name);

/// An open token file: text if its name ends in .txt, else a shard, with the mask that lies next to it, if one does. A
/// read throws Error when the file was cut short since.
class TokenFile {
  public:
    /// Throws Error naming the file when it is absent, unreadable, a folder or not a valid shard, or has an id >= vocab
    /// in its first kCheckedTokens tokens, or when its mask is not a valid one.
    TokenFile(const std::filesystem::path& path, std::int64_t vocab);

    const std::string& name() const { return name_; }
    std::int64_t count() const { return layout_.count; }
    void read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab) const;
    const FileReader& file() const { return file_; }
    const TokenMask* mask() const { return mask_ ? &*mask_ : nullptr; }

  private:
    std::string name_;
    FileReader file_;
    TokenLayout layout_;
    std::optional<TokenMask> mask_;
};

/// The files that the patterns of a config name, pattern by pattern. An existing path is itself; anything else is a
/// glob(3) pattern, whose matches come sorted by name. A file that is named twice is read twice. Throws Error naming a
/// pattern that matches nothing, with the advice for it if there is any.
std::vector<std::filesystem::path> expand_paths(const std::vector<std::string>& patterns,
                                                const std::function<std::string(const std::string&)>& advice = {});

/// Whether a mask lies next to a file that the patterns name; false where they name none.
bool have_masks(const std::vector<std::string>& patterns);

}  // namespace coda
