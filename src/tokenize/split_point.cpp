#include "src/tokenize/split_point.h"

#include <cmath>
#include <filesystem>
#include <system_error>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/file_kind.h"
#include "src/tokenize/byte_source.h"

namespace coda {
namespace {

/// Calls visit(byte) for every byte until it returns false.
template <class Visit>
void each_byte(const std::string& path, Visit&& visit) {
    ByteSource source(path);
    std::vector<char> block(std::size_t{1} << 20);
    while (const std::size_t count = source.read(block)) {
        for (std::size_t i = 0; i < count; ++i) {
            if (!visit(block[i])) return;
        }
    }
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

}  // namespace

std::int64_t blank_line_split(const std::string& path, double fraction) {
    require(path != "-", "standard input cannot be read twice, which --split-at blank-line does: name a file");
    std::error_code error;
    const std::filesystem::file_type type = std::filesystem::status(path, error).type();
    require(error || type == std::filesystem::file_type::regular, path, ": is ", file_kind(type),
            ", which cannot be read twice, as --split-at blank-line does: name a file");
    std::int64_t characters = 0;
    each_byte(path, [&](char byte) {
        characters += begins_character(byte) ? 1 : 0;
        return true;
    });
    const auto limit = static_cast<std::int64_t>(std::floor((1 - fraction) * static_cast<double>(characters)));
    std::int64_t offset = 0, seen = 0, split = -1;
    char previous = 0;
    each_byte(path, [&](char byte) {
        if (begins_character(byte) && seen++ == limit) return false;
        ++offset;
        if (byte == '\n' && previous == '\n') split = offset;
        previous = byte;
        return true;
    });
    return split >= 0 ? split : offset;
}

}  // namespace coda
