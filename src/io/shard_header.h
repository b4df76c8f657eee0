// The header of the binary files of tokens: 256 int32, {magic, version, count}; what the others mean is the format's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace coda {

inline constexpr std::int64_t kShardHeaderBytes = 1024;

struct ShardFormat {
    std::int32_t magic = 0;
    std::int32_t version = 0;
    std::int64_t bytes_each = 0;  // of what the header counts; 0: they differ
};

/// Formats of one use, and their names in messages.
struct ShardKind {
    std::span<const ShardFormat> formats;
    const char* name;     // "a mask"
    const char* counted;  // "tokens"
    const char* advice;   // ends the message where a file is of another format
};

struct ShardHeader {
    std::int64_t count = 0;
    std::int64_t bytes_each = 0;
};

/// The header of a file of `file_bytes` bytes that begins with `head`, its first kShardHeaderBytes or all of them.
/// Throws Error naming `name` for: fewer bytes than a header, an unknown magic or version, a count below 1, more or
/// fewer bytes than the count implies.
ShardHeader read_shard_header(std::span<const std::byte> head, std::int64_t file_bytes, const std::string& name,
                              const ShardKind& kind);

}  // namespace coda
