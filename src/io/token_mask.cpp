#include "src/io/token_mask.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace coda {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBlockTokens = std::int64_t{1} << 20;

}  // namespace

fs::path mask_path(const fs::path& shard) { return fs::path(shard).replace_extension(".mask"); }

std::int64_t mask_tokens(std::span<const std::byte> head, std::int64_t size, const std::string& name) {
    return read_shard_header(head, size, name, {std::span(&kMaskFormat, 1), "a mask", "tokens", ""}).count;
}

void require_mask_bits(std::span<const std::uint8_t> mask, std::int64_t first, const std::string& name) {
    const auto bad =
        std::find_if(mask.begin(), mask.end(), [](std::uint8_t byte) { return byte > (kMaskTarget | kMaskBegin); });
    require(bad == mask.end(), name, ": token ", first + (bad - mask.begin()), " has the byte ",
            static_cast<int>(bad == mask.end() ? 0 : *bad),
            "; bits 0 (a target) and 1 (a conversation begins) are known");
}

TokenMask::TokenMask(const fs::path& path, std::int64_t tokens) : name_(path.string()), file_(path) {
    std::vector<std::byte> head(static_cast<std::size_t>(std::min(file_.bytes(), kShardHeaderBytes)));
    file_.read_at(0, head);
    const std::int64_t count = mask_tokens(head, file_.bytes(), name_);
    require(count == tokens, name_, ": a mask of ", count, " tokens, but the shard next to it has ", tokens,
            "; both must be of one run of coda_tokenize");
    std::int32_t row = 0;
    std::memcpy(&row, head.data() + 3 * sizeof row, sizeof row);
    require(row >= 0, name_, ": the mask's header says rows of ", row, " tokens");
    row_ = row;
    std::vector<std::uint8_t> block;
    for (std::int64_t first = 0; first < count; first += kBlockTokens) {
        block.resize(static_cast<std::size_t>(std::min(kBlockTokens, count - first)));
        read(first, block);
        targets_ += std::count_if(block.begin(), block.end(), counts_as_target);
    }
}

void TokenMask::read(std::int64_t first, std::span<std::uint8_t> out) const {
    file_.read_at(kShardHeaderBytes + first, std::as_writable_bytes(out));
    require_mask_bits(out, first, name_);
}

}  // namespace coda
