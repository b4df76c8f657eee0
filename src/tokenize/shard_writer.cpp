#include "src/tokenize/shard_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <system_error>

#include "src/io/tokens.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

fs::path folder_of(const fs::path& stem) { return fs::absolute(stem).parent_path(); }

/// Finished shards and masks of `stem`: STEM.bin, STEM_dddddd.bin, and .mask for .bin.
std::vector<fs::path> existing_shards(const fs::path& stem) {
    const std::string name = stem.filename().string();
    std::vector<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_of(stem), error)) {
        std::string file = entry.path().filename().string();
        const std::string extension = entry.path().extension().string();
        if (!file.starts_with(name) || (extension != ".bin" && extension != ".mask")) continue;
        if (file.size() < name.size() + extension.size()) continue;
        const std::string_view middle =
            std::string_view(file).substr(name.size(), file.size() - name.size() - extension.size());
        const bool numbered = middle.size() >= 7 && middle[0] == '_' &&
                              middle.find_first_not_of("0123456789", 1) == std::string_view::npos;
        if (middle.empty() || numbered) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<std::byte> header(const ShardFormat& format, std::int64_t count, std::int64_t row = 0) {
    const std::array<std::int32_t, 4> words{format.magic, format.version, static_cast<std::int32_t>(count),
                                            static_cast<std::int32_t>(row)};
    std::vector<std::byte> bytes(kShardHeaderBytes);
    std::memcpy(bytes.data(), words.data(), sizeof words);
    return bytes;
}

std::vector<std::byte> shard_header(bool wide, std::int64_t count) {
    return header(wide ? kWideShard : kNarrowShard, count);
}

/// "STEM_0.mask.new" of "STEM_0.bin.new".
fs::path aside_of_mask(const fs::path& aside) { return aside_of(mask_path(fs::path(aside).replace_extension())); }

}  // namespace

ShardWriter::ShardWriter(fs::path stem, std::int64_t vocab, std::int64_t shard_tokens, bool overwrite,
                         const InputFiles& inputs)
    : stem_(std::move(stem)),
      shard_tokens_(shard_tokens > 0 ? shard_tokens : kMaxShardTokens),
      numbered_(shard_tokens > 0),
      wide_(vocab > 65536) {
    for (const fs::path& old : existing_shards(stem_)) require_output_file("--out", old, overwrite, inputs);
    make_folders(folder_of(stem_));
    buffer_.reserve(kBufferBytes);
}

ShardWriter::~ShardWriter() {
    writer_.reset();
    std::error_code ignored;
    for (const fs::path& aside : asides_) {
        fs::remove(aside, ignored);
        fs::remove(aside_of_mask(aside), ignored);
    }
}

fs::path ShardWriter::final_path(std::size_t shard) const {
    if (!numbered_) return stem_.string() + ".bin";
    const std::string number = std::to_string(shard);
    return text(stem_.string(), "_", std::string(number.size() < 6 ? 6 - number.size() : 0, '0'), number, ".bin");
}

void ShardWriter::open_shard() {
    const fs::path aside = aside_of(text(stem_.string(), "_", asides_.size(), ".bin"));
    std::error_code ignored;
    for (const fs::path& old : {aside, aside_of_mask(aside)}) fs::remove(old, ignored);  // of a run that was killed
    writer_.emplace(aside, FileWriter::Mode::create);
    asides_.push_back(aside);
    in_shard_ = 0;
    writer_->write(shard_header(wide_, 0));
}

void ShardWriter::flush() {
    writer_->write(buffer_);
    buffer_.clear();
}

void ShardWriter::seal() {
    flush();
    writer_->write_at(0, shard_header(wide_, in_shard_));
    writer_->finish();
    writer_.reset();
    if (mask_.empty()) return;
    FileWriter mask(aside_of_mask(asides_.back()), FileWriter::Mode::create);
    mask.write(header(kMaskFormat, in_shard_, row_));
    mask.write(std::as_bytes(std::span(mask_)));
    mask.finish();
    mask_.clear();
}

void ShardWriter::add(std::span<const std::uint32_t> tokens, std::span<const std::uint8_t> mask, std::int64_t row) {
    row_ = row;
    require(tokens.size() == mask.size(), tokens.size(), " tokens have a mask of ", mask.size());
    while (!tokens.empty()) {
        const auto room = static_cast<std::size_t>(shard_tokens_ - (writer_ ? in_shard_ : 0));
        const std::size_t count = std::min(tokens.size(), room);
        mask_.insert(mask_.end(), mask.begin(), mask.begin() + static_cast<std::ptrdiff_t>(count));
        add(tokens.first(count));
        tokens = tokens.subspan(count);
        mask = mask.subspan(count);
    }
}

void ShardWriter::add(std::span<const std::uint32_t> tokens) {
    while (!tokens.empty()) {
        if (!writer_) open_shard();
        const std::size_t each = wide_ ? 4 : 2;
        const auto count =
            static_cast<std::size_t>(std::min({static_cast<std::int64_t>(tokens.size()), shard_tokens_ - in_shard_,
                                               static_cast<std::int64_t>((kBufferBytes - buffer_.size()) / each)}));
        const std::size_t held = buffer_.size();
        buffer_.resize(held + count * each);
        for (std::size_t i = 0; i < count; ++i) {  // little-endian, as src/io/tokens.cpp asserts of the machine
            std::memcpy(buffer_.data() + held + i * each, &tokens[i], each);
        }
        tokens = tokens.subspan(count);
        in_shard_ += static_cast<std::int64_t>(count);
        tokens_ += static_cast<std::int64_t>(count);
        if (buffer_.size() + each > kBufferBytes) flush();
        if (in_shard_ == shard_tokens_) seal();
    }
}

void ShardWriter::finish() {
    if (writer_) seal();
    if (asides_.size() > 1) numbered_ = true;
}

std::vector<fs::path> ShardWriter::commit() {
    std::vector<fs::path> written, all;
    std::error_code none;
    for (std::size_t i = 0; i < asides_.size(); ++i) {
        written.push_back(final_path(i));
        all.push_back(written.back());
        if (const fs::path mask = aside_of_mask(asides_[i]); fs::exists(mask, none)) {
            all.push_back(mask_path(written.back()));
            fs::remove(written.back());  // an old shard must not lie next to a new mask, whenever this ends
            rename_path(mask, all.back());
        }
    }
    const auto remove_others = [&](const char* extension) {
        for (const fs::path& old : existing_shards(stem_)) {
            const bool ours = std::any_of(all.begin(), all.end(),
                                          [&](const fs::path& path) { return path.filename() == old.filename(); });
            if (!ours && old.extension() == extension) fs::remove(old);
        }
    };
    remove_others(".mask");  // before a new shard comes to lie next to it
    for (std::size_t i = 0; i < asides_.size(); ++i) rename_path(asides_[i], written[i]);
    asides_.clear();
    remove_others(".bin");
    sync_folder(folder_of(stem_));
    return written;
}

}  // namespace coda
