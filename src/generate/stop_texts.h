// Texts that end a sequence and are not part of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coda {

/// Watches a text that comes in pieces. The text ends where the first stop text is complete; of several that are
/// complete at that place, the longest is taken away. So the result depends only on the text, not on its pieces.
class StopTexts {
  public:
    StopTexts() = default;
    /// Throws Error for an empty stop text.
    explicit StopTexts(std::vector<std::string> texts);

    /// What of the text is settled by now: without a stop text and what may become one. Nothing once stopped().
    std::string add(std::string_view piece);

    /// The text ends: what was held back. Nothing once stopped().
    std::string finish();

    bool stopped() const { return stopped_; }

  private:
    /// The bytes at the end of held_ that begin a stop text without completing one.
    std::size_t begun() const;

    std::vector<std::string> texts_;
    std::string held_;
    bool stopped_ = false;
};

}  // namespace coda
