#include "src/io/shard_header.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/core/error.h"

namespace coda {

ShardHeader read_shard_header(std::span<const std::byte> head, std::int64_t size, const std::string& name,
                              const ShardKind& kind) {
    require(size >= kShardHeaderBytes, name, ": ", size, " bytes are too few for ", kind.name, ", whose header has ",
            kShardHeaderBytes, kind.advice);
    std::array<std::int32_t, 3> words{};
    std::memcpy(words.data(), head.data(), sizeof words);
    const auto [magic, version, count] = words;

    const auto format = std::find_if(kind.formats.begin(), kind.formats.end(),
                                     [magic = magic](const ShardFormat& known) { return known.magic == magic; });
    std::string magics;
    for (const ShardFormat& known : kind.formats) magics += text(magics.empty() ? "" : " or ", known.magic);
    require(format != kind.formats.end(), name, ": not ", kind.name, ": it begins with ", magic, " where ", magics,
            " is expected", kind.advice);
    require(version == format->version, name, ": ", kind.name, " of version ", version, "; version ", format->version,
            " is expected with magic ", magic);
    require(count > 0, name, ": the header says ", count, " ", kind.counted, "; at least 1 is expected");
    const std::int64_t expected = kShardHeaderBytes + count * format->bytes_each;
    require(format->bytes_each == 0 || size == expected, name, ": the file has ", size, " bytes, but its header says ",
            count, " ", kind.counted, ", which makes ", expected, "; was it cut off or written only in part?");
    return {count, format->bytes_each};
}

}  // namespace coda
