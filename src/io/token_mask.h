// The mask of a token shard: which of its tokens training learns to predict, and where conversations begin.
//
//   NAME.mask, next to NAME.bin   1024-byte header of 256 int32: {20251125, 1, count, tokens of a row or 0}, the others
//                                 unused; then a byte per token: kMaskTarget, kMaskBegin, or both
//
// It only ever lies next to its shard: a reader that does not know masks sees a plain shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "src/io/files.h"
#include "src/io/shard_header.h"

namespace coda {

inline constexpr ShardFormat kMaskFormat{20251125, 1, 1};
inline constexpr std::uint8_t kMaskTarget = 1;  // this token is a target
inline constexpr std::uint8_t kMaskBegin = 2;   // a conversation begins with this token

/// Whether a token counts where it follows another one: a conversation's first token follows from nothing.
constexpr bool counts_as_target(std::uint8_t mask) { return (mask & (kMaskTarget | kMaskBegin)) == kMaskTarget; }

/// Below this share of counted tokens nearly all of the work of training is for tokens that teach nothing.
inline constexpr double kFewTargets = 0.05;

/// FOLDER/NAME.mask of the shard FOLDER/NAME.bin.
std::filesystem::path mask_path(const std::filesystem::path& shard);

/// The number of tokens of a mask; see read_shard_header.
std::int64_t mask_tokens(std::span<const std::byte> head, std::int64_t file_bytes, const std::string& name);

/// Throws Error with `name` and the token's position when a byte has other bits than the two. The first byte is of
/// token `first`.
void require_mask_bits(std::span<const std::uint8_t> mask, std::int64_t first, const std::string& name);

/// An open mask. A read throws Error when the file was cut short since.
class TokenMask {
  public:
    /// Checks the file as a whole. Throws Error as mask_tokens and require_mask_bits do, when the file is unreadable,
    /// and when it is not of `tokens` tokens, as its shard is.
    TokenMask(const std::filesystem::path& path, std::int64_t tokens);

    const FileReader& file() const { return file_; }
    std::int64_t targets() const { return targets_; }  // tokens that count
    std::int64_t row() const { return row_; }          // tokens of a row of its packing; 0: not said

    /// The bytes of tokens [first, first + out.size()), which are within the shard.
    void read(std::int64_t first, std::span<std::uint8_t> out) const;

  private:
    std::string name_;
    FileReader file_;
    std::int64_t targets_ = 0, row_ = 0;
};

}  // namespace coda
