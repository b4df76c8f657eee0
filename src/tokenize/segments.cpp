#include "src/tokenize/segments.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "kernels/core/error.h"
#include "src/core/errors.h"
#include "src/tokenize/split_point.h"

namespace coda {
namespace {

TextFormat format_of(std::string name, TextFormat given) {
    if (given != TextFormat::automatic) return given;
    if (name == "-") return TextFormat::txt;
    const std::string whole = name;
    for (const char* suffix : {".gz", ".zst"}) {
        if (name.ends_with(suffix)) name.resize(name.size() - std::string_view(suffix).size());
    }
    if (name.ends_with(".txt")) return TextFormat::txt;
    if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return TextFormat::jsonl;
    throw UsageError(text(whole, ": neither .txt nor .jsonl (plain, .gz or .zst): say --format txt or --format jsonl"));
}

}  // namespace

bool is_blank_line(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

bool is_validation(std::int64_t document, double fraction) {
    const auto before = [&](std::int64_t count) { return std::floor(static_cast<double>(count) * fraction); };
    return before(document + 1) > before(document);
}

SegmentReader::SegmentReader(const Tokenizer& tokenizer, std::vector<std::string> inputs, const SegmentOptions& options)
    : cutter_(tokenizer), inputs_(std::move(inputs)), options_(options) {
    for (const std::string& input : inputs_) {
        const TextFormat format = format_of(input, options_.format);
        if (options_.split_at == SplitAt::blank_line && format == TextFormat::jsonl) {
            throw UsageError(
                text(input, ": --split-at blank-line parts .txt files; the lines of .jsonl are documents"));
        }
    }
}

std::int64_t SegmentReader::consumed() const {
    return consumed_before_ + (source_ != nullptr ? source_->consumed() : 0);
}

bool SegmentReader::open_next() {
    if (opened_ == inputs_.size()) return false;
    const std::string& input = inputs_[opened_++];
    format_ = format_of(input, options_.format);
    boundary_ = -1;
    if (options_.split_at == SplitAt::blank_line && options_.val_fraction > 0) {
        boundary_ = blank_line_split(input, options_.val_fraction);
    }
    source_ = std::make_unique<ByteSource>(input);
    pending_.clear();
    offset_ = 0;
    line_ = 1;
    end_ = begun_ = false;
    return true;
}

/// Reads until `bytes` are pending; false when the input ends before.
bool SegmentReader::fill(std::size_t bytes) {
    if (pending_.size() < bytes && !end_) {
        const std::size_t held = pending_.size();
        pending_.resize(bytes);
        pending_.resize(held + source_->read(std::span(pending_).subspan(held)));
        end_ = pending_.size() < bytes;
    }
    return pending_.size() >= bytes;
}

Segment SegmentReader::take(std::size_t bytes) {
    Segment segment{.format = format_,
                    .source = source_->name(),
                    .text = pending_.substr(0, bytes),
                    .offset = offset_,
                    .line = line_,
                    .document = documents_};
    pending_.erase(0, bytes);
    offset_ += static_cast<std::int64_t>(bytes);
    return segment;
}

std::optional<Segment> SegmentReader::next_text() {
    const bool before_boundary = offset_ < boundary_;
    const auto left = static_cast<std::size_t>(before_boundary ? boundary_ - offset_ : 0);  // of this document
    std::size_t wanted = options_.segment_bytes;
    Cut cut;
    bool whole = false;  // all that is left of the document
    for (;; wanted *= 2) {
        fill(wanted);
        const bool ends_here = before_boundary ? left <= pending_.size() : end_;
        const std::size_t known = before_boundary ? std::min(left, pending_.size()) : pending_.size();
        whole = ends_here && known <= wanted;
        cut = whole ? Cut{known, 0} : cutter_.find(std::string_view(pending_).substr(0, std::min(known, wanted)));
        if (whole || cut.at > 0) break;
        require(wanted < options_.max_segment_bytes, source_->name(), ": ", options_.max_segment_bytes,
                " bytes from byte ", offset_,
                " on have no place where the tokenizer surely keeps two characters apart; break the text up");
    }
    if (whole && cut.at == 0 && !before_boundary) return std::nullopt;
    Segment segment = take(cut.at);
    segment.text.append(pending_, 0, cut.lookahead);
    segment.lookahead = cut.lookahead;
    segment.first = !std::exchange(begun_, true);
    segment.last = whole;
    segment.validation =
        boundary_ >= 0 ? !before_boundary
                       : options_.split_at == SplitAt::document && is_validation(documents_, options_.val_fraction);
    if (whole) {
        ++documents_;
        begun_ = false;
    }
    return segment;
}

std::optional<Segment> SegmentReader::next_lines() {
    std::size_t bytes = 0;
    for (std::size_t wanted = options_.segment_bytes;; wanted *= 2) {
        if (!fill(wanted)) {
            bytes = pending_.size();
            break;
        }
        bytes = pending_.rfind('\n') + 1;  // npos + 1 is 0
        if (bytes > 0) break;
        require(wanted < options_.max_line_bytes, source_->name(), ": line ", line_, " has more than ",
                options_.max_line_bytes, " bytes");
    }
    if (bytes == 0) return std::nullopt;
    Segment segment = take(bytes);
    for (std::string_view rest = segment.text; !rest.empty();) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        if (!is_blank_line(rest.substr(0, end))) ++documents_;
        if (end < rest.size()) ++line_;
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return segment;
}

std::optional<Segment> SegmentReader::next() {
    for (;;) {
        if (source_ != nullptr) {
            if (auto segment = format_ == TextFormat::txt ? next_text() : next_lines()) return segment;
            consumed_before_ += source_->consumed();
            source_.reset();
        }
        if (!open_next()) return std::nullopt;
    }
}

}  // namespace coda
