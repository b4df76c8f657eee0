// Text to tokens: a tokenizer at work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "src/tokenize/text_ranges.h"
#include "src/tokenize/token_cache.h"
#include "src/tokenize/tokenizer.h"

namespace coda {

/// Where a text stands in a longer one that was cut (see cuts.h).
struct TextPart {
    bool begins = true;         // it is not what follows a cut
    std::size_t lookahead = 0;  // bytes at its end that are seen but not encoded: the text continues with them
};

/// Encodes. Each thread has its own. The tokenizer must outlive it.
class Encoder {
  public:
    explicit Encoder(const Tokenizer& tokenizer);

    /// Appends the ids of `text`, valid UTF-8. Throws Error where a token lies across a cut, and for a character that
    /// needs an unknown token which the vocabulary lacks.
    void encode(std::string_view text, TextPart part, std::vector<std::uint32_t>& out);
    void encode(std::string_view text, std::vector<std::uint32_t>& out) { encode(text, TextPart{}, out); }

    /// The same of a whole text of which `ranges` says what is a message's. `touched` gets each token's bits.
    void encode(std::string_view text, const TextRanges& ranges, std::vector<std::uint32_t>& out,
                std::vector<std::uint8_t>* touched = nullptr);

  private:
    /// A stretch of text on its way through the steps: the first `size` bytes; what follows is only looked at.
    struct Piece {
        std::string_view text;
        std::size_t size = 0;
        bool begins = true;       // the stretch does not follow a cut
        bool begins_text = true;  // it is at the very beginning of the text
        const TextRanges* ranges = nullptr;
        std::size_t origin = 0;  // where it begins, in the positions of `ranges`
        bool whole() const { return size == text.size(); }
        /// Bytes [begin, end); an end beyond `size` is one that the cut hides.
        Piece part(std::size_t begin, std::size_t end) const;
    };

    template <class Gap>
    void between(const AddedTokenFinder& finder, Piece piece, std::vector<std::uint32_t>& out, Gap&& gap);
    template <class Make>
    void cached(std::size_t index, std::string_view text, std::vector<std::uint32_t>& out, Make&& make);
    void normalize(Piece piece, std::vector<std::uint32_t>& out);
    void next(std::size_t index, std::string_view text, std::vector<std::uint32_t>& out);
    void run(std::size_t index, Piece piece, std::vector<std::uint32_t>& out);
    bool run_alike(std::size_t index, Piece piece, std::vector<std::uint32_t>& out);
    void split(std::size_t index, Piece piece, std::vector<std::uint32_t>& out);
    void metaspace(std::size_t index, Piece piece, std::vector<std::uint32_t>& out);
    void words(Piece piece, std::vector<std::uint32_t>& out);
    void word(std::string_view word, std::vector<std::uint32_t>& out);
    void word_in_part(const Piece& word, std::vector<std::uint32_t>& out);

    const Tokenizer& tokenizer_;
    std::vector<std::unique_ptr<RegexScanner>> scanners_;  // by step, null for one without an expression
    bool splits_ = false;                                  // a step divides pieces
    PairMerger merger_;
    TokenCache cache_;
    std::vector<std::uint32_t> symbols_;
    bool follows_ = false;               // the text has ranges, and
    std::vector<std::uint8_t> touched_;  // these are its tokens' bits
};

}  // namespace coda
