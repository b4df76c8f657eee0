// Inputs as the pieces of work that threads take: parts of a text, or whole lines of JSON.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/error.h"
#include "src/tokenize/byte_source.h"
#include "src/tokenize/cuts.h"
#include "src/tokenize/tokenizer.h"

namespace coda {

enum class TextFormat { automatic, txt, jsonl };
enum class SplitAt { document, blank_line };

/// Which documents are for validation. Document i is where floor((i + 1) * fraction) > floor(i * fraction): evenly
/// spread, the same in every run.
bool is_validation(std::int64_t document, double fraction);

/// A line of a .jsonl file that is not a document.
bool is_blank_line(std::string_view line);

struct Segment {
    TextFormat format = TextFormat::txt;
    std::string source;                // the input's name
    std::string text;                  // part of a document, or lines
    std::int64_t offset = 0;           // txt: bytes of the input before `text`
    std::int64_t line = 0;             // jsonl: number of the first line, from 1
    std::int64_t document = 0;         // number of the (first) document in all inputs, from 0
    std::size_t lookahead = 0;         // txt: bytes at the end that belong to the next segment
    bool first = false, last = false;  // txt: the document begins, ends here
    bool validation = false;           // txt
};

struct SegmentOptions {
    TextFormat format = TextFormat::automatic;  // by the name: .txt, .jsonl, .ndjson, before .gz or .zst
    SplitAt split_at = SplitAt::document;
    double val_fraction = 0;
    std::size_t segment_bytes = std::size_t{256} << 10;     // how large segments are where the text allows it
    std::size_t max_segment_bytes = std::size_t{64} << 20;  // of text with no place to cut; Error beyond it
    std::size_t max_line_bytes = std::size_t{1} << 30;      // of JSON; Error beyond it
};

/// Reads inputs one after the other, holding a segment and a block of input at a time.
class SegmentReader {
  public:
    /// A .txt input is one document, with SplitAt::blank_line two. Throws Error for a name whose format is not known
    /// and for options that do not go together.
    SegmentReader(const Tokenizer& tokenizer, std::vector<std::string> inputs, const SegmentOptions& options);

    std::optional<Segment> next();

    std::int64_t consumed() const;  // bytes of all inputs so far, compressed ones where they are
    std::int64_t documents() const { return documents_; }

  private:
    bool open_next();
    bool fill(std::size_t bytes);
    std::optional<Segment> next_text();
    std::optional<Segment> next_lines();
    Segment take(std::size_t bytes);

    TextCutter cutter_;
    std::vector<std::string> inputs_;
    SegmentOptions options_;
    std::size_t opened_ = 0;
    std::int64_t consumed_before_ = 0, documents_ = 0;

    // The state of the input that is open.
    std::unique_ptr<ByteSource> source_;
    TextFormat format_ = TextFormat::txt;
    std::string pending_;         // read, not yet in a segment
    std::int64_t offset_ = 0;     // of pending_ in the input
    std::int64_t line_ = 1;       // jsonl: of pending_
    std::int64_t boundary_ = -1;  // txt: the offset where the validation part begins; -1 for none
    bool end_ = false, begun_ = false;
};

/// Calls visit(line, place, document) for the lines of a segment of JSON Lines that are not blank; `document` counts
/// them.
template <class Visit>
void for_each_line(const Segment& segment, Visit&& visit) {
    std::int64_t line = segment.line, document = segment.document;
    for (std::string_view rest = segment.text; !rest.empty(); ++line) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view content = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (!is_blank_line(content)) visit(content, text(segment.source, ": line ", line), document++);
    }
}

}  // namespace coda
