// A tokenizer's normalizer: what is done to a stretch of text between added tokens.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tokenize/text_ranges.h"
#include "src/tokenize/tokenizer_spec.h"

namespace coda {

/// The text with each occurrence of `pattern` replaced.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content);

/// Whether NFC may compose `value` with what stands before it.
bool joins_leftward(char32_t value);

class Normalizer {
  public:
    explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

    /// The normalized text: `text` itself where that is clear at a glance, else in `storage`. A stretch that does not
    /// begin here, since the text was cut, gets nothing before it. `ranges` of the text become those of the result.
    /// Throws Error for text that is no valid UTF-8.
    std::string_view apply(std::string_view text, bool begins, std::string& storage,
                           TextRanges* ranges = nullptr) const;

    bool has_nfc() const;

    /// The text that a character becomes by Replace. Empty where a pattern of several characters may hold it.
    std::string replaced(std::string_view character) const;

  private:
    std::vector<NormalizerStep> steps_;
};

}  // namespace coda
