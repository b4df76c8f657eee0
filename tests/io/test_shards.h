// Writes llm.c token shards for tests.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/io/test_files.h"

namespace coda {

/// The bytes of a shard. Token is std::uint16_t (20240520, version 1) or std::uint32_t (20240801, version 7).
template <class Token>
std::string shard_bytes(const std::vector<Token>& tokens) {
    static_assert(sizeof(Token) == 2 || sizeof(Token) == 4);
    std::array<std::int32_t, 256> header{};
    header[0] = sizeof(Token) == 2 ? 20240520 : 20240801;
    header[1] = sizeof(Token) == 2 ? 1 : 7;
    header[2] = static_cast<std::int32_t>(tokens.size());
    std::string bytes(sizeof(header) + tokens.size() * sizeof(Token), '\0');
    std::memcpy(bytes.data(), header.data(), sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), tokens.data(), tokens.size() * sizeof(Token));
    return bytes;
}

/// The bytes of a mask.
inline std::string mask_bytes(const std::vector<std::uint8_t>& mask) {
    std::array<std::int32_t, 256> header{20251125, 1, static_cast<std::int32_t>(mask.size())};
    std::string bytes(sizeof(header), '\0');
    std::memcpy(bytes.data(), header.data(), sizeof(header));
    return bytes.append(mask.begin(), mask.end());
}

/// A shard of `count` tokens first, first + 1, ...
inline void put_counting_shard(const std::filesystem::path& path, std::int64_t first, std::int64_t count) {
    std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(i);
    put(path, shard_bytes(tokens));
}

}  // namespace coda
