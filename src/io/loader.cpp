#include "src/io/loader.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/config/shipped.h"
#include "src/io/permutation.h"

namespace coda {
namespace {

constexpr std::uint64_t kShuffleKey =
    0x73687566666c6531;  // keeps the shuffle's random numbers apart from other uses of a seed

std::int64_t total_tokens(const TokenRanges& ranges) {
    std::int64_t total = 0;
    for (const TokenRange& range : ranges) total += range.count();
    return total;
}

std::int64_t total_sequences(const TokenRanges& ranges, std::int64_t seq_len) {
    std::int64_t total = 0;
    for (const TokenRange& range : ranges) total += range.sequences(seq_len);
    return total;
}

/// "N tokens of FILE" or "N tokens of FILE and 3 more files".
std::string describe(const TokenRanges& ranges) {
    std::string name = ranges.empty() ? "no file" : ranges.front().file->name();
    if (ranges.size() > 1) name += text(" and ", ranges.size() - 1, " more");
    return text(total_tokens(ranges), " tokens of ", name);
}

TokenRanges open_ranges(const std::vector<std::string>& patterns, const DataConfig& data, std::int64_t vocab) {
    const auto advice = [&](const std::string& pattern) {
        const std::string command = data_command(pattern, data.tokenizer, vocab);
        if (command.empty()) return std::string();
        const bool in_files = command.find(" --files ") != std::string::npos;
        return text("; to make what is missing", in_files ? " (fewer --files for a short run): " : ": ", command);
    };
    TokenRanges ranges;
    for (const auto& path : expand_paths(patterns, advice)) {
        auto file = std::make_shared<const TokenFile>(path, vocab);
        const std::int64_t count = file->count();
        ranges.push_back({std::move(file), 0, count});
    }
    return ranges;
}

/// Where validation begins in the concatenation of `files`: at the last 10%, or earlier if the last file long enough
/// for a sequence would not give it one.
std::int64_t validation_begin(const TokenRanges& files, std::int64_t seq_len) {
    const std::int64_t total = total_tokens(files);
    std::int64_t begin = total - total / 10;
    std::int64_t file_end = total;
    for (auto file = files.rbegin(); file != files.rend(); file_end -= file->count(), ++file)
        if (file->sequences(seq_len) > 0) return std::min(begin, file_end - (seq_len + 1));
    return begin;
}

Datasets split(const TokenRanges& files, std::int64_t begin, std::int64_t seq_len) {
    Datasets parts;
    std::int64_t file_begin = 0;
    for (const TokenRange& file : files) {
        std::int64_t cut = std::clamp<std::int64_t>(begin - file_begin, 0, file.count());
        const bool by_rows = file.file->mask() != nullptr && cut < file.count();
        if (by_rows) cut -= cut % seq_len;
        // The token after the last row is its last target, which is none: it begins a conversation.
        if (cut > 0) parts.train.push_back({file.file, 0, by_rows ? cut + 1 : cut});
        if (cut < file.count()) parts.val.push_back({file.file, cut, file.count()});
        file_begin += file.count();
    }
    return parts;
}

constexpr const char* kAdvice = "give more data or a smaller training.seq_len";

void require_sequence(const TokenRanges& ranges, const char* key, std::int64_t seq_len, const char* advice) {
    require(total_sequences(ranges, seq_len) > 0, key, ": ", describe(ranges),
            " make no sequence of training.seq_len = ", seq_len, " (which takes ", seq_len + 1,
            " tokens of one file); ", advice);
}

}  // namespace

TokenRanges open_validation(const DataConfig& data, std::int64_t seq_len, std::int64_t vocab) {
    if (data.val.empty()) return open_datasets(data, seq_len, vocab).val;
    TokenRanges val = open_ranges(data.val, data, vocab);
    require_sequence(val, "data.val", seq_len, kAdvice);
    return val;
}

Datasets open_datasets(const DataConfig& data, std::int64_t seq_len, std::int64_t vocab) {
    TokenRanges train = open_ranges(data.train, data, vocab);
    require_sequence(train, "data.train", seq_len, kAdvice);
    if (!data.val.empty()) return {std::move(train), open_validation(data, seq_len, vocab)};
    Datasets parts = split(train, validation_begin(train, seq_len), seq_len);
    require_sequence(parts.train, "data.train (without the last 10%, which are validation)", seq_len,
                     "give more data, a smaller training.seq_len, or data.val");
    return parts;
}

Loader::Loader(TokenRanges ranges, const LoaderOptions& options, std::int64_t batch)
    : ranges_(std::move(ranges)), options_(options), first_{0} {
    require(options_.seq_len > 0 && options_.vocab > 0, "a loader needs seq_len and vocab");
    for (const TokenRange& range : ranges_) first_.push_back(first_.back() + range.sequences(options_.seq_len));
    require(sequences() > 0 && sequences() >= batch, describe(ranges_), " make ", sequences(),
            " sequences of training.seq_len = ", options_.seq_len, ", but one step takes ", batch,
            "; give more data, or a smaller training.micro_batch_size, training.grad_accumulation_steps or "
            "training.seq_len");
}

TokenBatch Loader::batch(std::int64_t first, std::int64_t count) const {
    require(first >= 0 && count >= 0, "there is no batch of the sequences [", first, ", ", first + count, ")");
    const auto elements = static_cast<std::size_t>(count * options_.seq_len);
    TokenBatch batch;
    batch.tokens.assign(elements, 0);
    batch.targets.assign(elements, kIgnoredTarget);
    batch.begins.assign(elements, 0);
    for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t epoch = (first + row) / sequences();
        std::int64_t sequence = (first + row) % sequences();
        if (epoch > 0 && !options_.repeat) break;
        if (options_.shuffle)
            sequence =
                Permutation(sequences(), options_.seed ^ kShuffleKey, static_cast<std::uint64_t>(epoch))(sequence);
        read_row(sequence, static_cast<std::size_t>(row), batch);
    }
    batch.valid = std::count_if(batch.targets.begin(), batch.targets.end(), [](std::int32_t t) { return t >= 0; });
    return batch;
}

void Loader::read_row(std::int64_t sequence, std::size_t row, TokenBatch& batch) const {
    const auto seq_len = static_cast<std::size_t>(options_.seq_len);
    const auto after = std::upper_bound(first_.begin(), first_.end(), sequence);
    const auto index = static_cast<std::size_t>(std::distance(first_.begin(), after) - 1);
    const TokenFile& file = *ranges_[index].file;
    const std::int64_t begin = ranges_[index].begin + (sequence - first_[index]) * options_.seq_len;
    std::vector<std::int32_t> window(seq_len + 1);
    file.read(begin, window, options_.vocab);
    const auto out = static_cast<std::ptrdiff_t>(row * seq_len);
    std::copy(window.begin(), window.end() - 1, batch.tokens.begin() + out);
    if (file.mask() == nullptr) {
        std::copy(window.begin() + 1, window.end(), batch.targets.begin() + out);
        const std::vector<std::uint8_t> begins = begins_at(options_.bos, std::span(window).first(seq_len));
        std::copy(begins.begin(), begins.end(), batch.begins.begin() + out);
        return;
    }
    std::vector<std::uint8_t> mask(window.size());
    file.mask()->read(begin, mask);
    for (std::size_t t = 0; t < seq_len; ++t) {
        if (counts_as_target(mask[t + 1])) batch.targets[row * seq_len + t] = window[t + 1];
        batch.begins[row * seq_len + t] = (mask[t] & kMaskBegin) != 0 ? 1 : 0;
    }
}

std::vector<std::uint8_t> begins_at(std::int32_t bos, std::span<const std::int32_t> tokens) {
    std::vector<std::uint8_t> begins(tokens.size());
    std::transform(tokens.begin(), tokens.end(), begins.begin(),
                   [bos](std::int32_t token) { return static_cast<std::uint8_t>(token == bos ? 1 : 0); });
    return begins;
}

void document_starts(std::span<const std::uint8_t> begins, std::int64_t seq_len, std::span<std::int32_t> positions,
                     std::span<std::int32_t> doc_start) {
    require(seq_len > 0 && begins.size() % static_cast<std::size_t>(seq_len) == 0 &&
                positions.size() == begins.size() && doc_start.size() == begins.size(),
            "document starts of ", begins.size(), " tokens in sequences of ", seq_len, " cannot be written to ",
            positions.size(), " positions and ", doc_start.size(), " starts");
    std::int32_t start = 0;
    for (std::size_t i = 0; i < begins.size(); ++i) {
        const auto position = static_cast<std::int32_t>(i % static_cast<std::size_t>(seq_len));
        if (position == 0 || begins[i] != 0) start = position;
        doc_start[i] = start;
        positions[i] = position - start;
    }
}

}  // namespace coda
