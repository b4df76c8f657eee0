// Token shards while they are written: aside as "<name>.new", and under their names only when all of them are complete.
// src/io/tokens.h has the format, and src/io/token_mask.h that of masks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/io/files.h"
#include "src/io/output_file.h"

namespace coda {

/// The shards of one stream of tokens: STEM.bin, or STEM_000000.bin, STEM_000001.bin, ...
class ShardWriter {
  public:
    /// Shards of `shard_tokens` tokens, the last one of what is left; 0 for one file where its header's 31 bits can
    /// count it. Ids are below `vocab`: uint16 tokens up to 65536, else uint32. Error when
    /// STEM.bin or a numbered shard exists, unless with `overwrite` a regular file that is not one of `inputs`.
    ShardWriter(std::filesystem::path stem, std::int64_t vocab, std::int64_t shard_tokens, bool overwrite,
                const InputFiles& inputs);
    ~ShardWriter();  // what has not been committed is removed
    ShardWriter(const ShardWriter&) = delete;
    ShardWriter& operator=(const ShardWriter&) = delete;

    /// Tokens without a mask.
    void add(std::span<const std::uint32_t> tokens);
    /// Tokens with the mask of each, in rows of `row` tokens; all that is added to a writer has one.
    void add(std::span<const std::uint32_t> tokens, std::span<const std::uint8_t> mask, std::int64_t row);
    std::int64_t tokens() const { return tokens_; }

    /// Writes out all that has been added, durably; nothing has its name yet.
    void finish();

    /// Gives masks and then shards their names and removes others of this stem, which an earlier run left. After
    /// finish(). Returns the shards.
    std::vector<std::filesystem::path> commit();

    static constexpr std::int64_t kMaxShardTokens = 2147483647;

  private:
    void open_shard();
    void flush();
    void seal();
    std::filesystem::path final_path(std::size_t shard) const;

    std::filesystem::path stem_;
    std::int64_t shard_tokens_;
    bool numbered_;
    bool wide_;
    std::vector<std::filesystem::path> asides_;  // in order; the last is writer_'s if it is open
    std::optional<FileWriter> writer_;
    std::vector<std::byte> buffer_;
    std::vector<std::uint8_t> mask_;  // of the shard that is open
    std::int64_t row_ = 0;            // its rows
    std::int64_t in_shard_ = 0, tokens_ = 0;
};

}  // namespace coda
