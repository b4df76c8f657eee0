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

/// Finished shards of `stem`: STEM.bin and STEM_dddddd.bin.
std::vector<fs::path> existing_shards(const fs::path& stem) {
    const std::string name = stem.filename().string();
    std::vector<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_of(stem), error)) {
        std::string file = entry.path().filename().string();
        if (!file.starts_with(name) || !file.ends_with(".bin")) continue;
        const std::string_view middle = std::string_view(file).substr(name.size(), file.size() - name.size() - 4);
        const bool numbered = middle.size() >= 7 && middle[0] == '_' &&
                              middle.find_first_not_of("0123456789", 1) == std::string_view::npos;
        if (middle.empty() || numbered) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<std::byte> header(bool wide, std::int64_t count) {
    const std::array<std::int32_t, 3> words{wide ? 20240801 : 20240520, wide ? 7 : 1, static_cast<std::int32_t>(count)};
    std::vector<std::byte> bytes(kShardHeaderBytes);
    std::memcpy(bytes.data(), words.data(), sizeof words);
    return bytes;
}

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
    for (const fs::path& aside : asides_) fs::remove(aside, ignored);
}

fs::path ShardWriter::final_path(std::size_t shard) const {
    if (!numbered_) return stem_.string() + ".bin";
    const std::string number = std::to_string(shard);
    return text(stem_.string(), "_", std::string(number.size() < 6 ? 6 - number.size() : 0, '0'), number, ".bin");
}

void ShardWriter::open_shard() {
    const fs::path aside = text(stem_.string(), "_", asides_.size(), ".bin.new");
    std::error_code ignored;
    fs::remove(aside, ignored);  // of a run that was killed
    writer_.emplace(aside, FileWriter::Mode::create);
    asides_.push_back(aside);
    in_shard_ = 0;
    writer_->write(header(wide_, 0));
}

void ShardWriter::flush() {
    writer_->write(buffer_);
    buffer_.clear();
}

void ShardWriter::seal() {
    flush();
    writer_->write_at(0, header(wide_, in_shard_));
    writer_->finish();
    writer_.reset();
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
    std::vector<fs::path> written;
    for (std::size_t i = 0; i < asides_.size(); ++i) {
        written.push_back(final_path(i));
        rename_path(asides_[i], written.back());
    }
    asides_.clear();
    for (const fs::path& old : existing_shards(stem_)) {
        const bool ours = std::any_of(written.begin(), written.end(),
                                      [&](const fs::path& path) { return path.filename() == old.filename(); });
        if (!ours) fs::remove(old);
    }
    sync_folder(folder_of(stem_));
    return written;
}

}  // namespace coda
