// Text from outside as a terminal may see it: names of files, keys and tensors can hold sequences that a terminal
// obeys.
#pragma once

#include <string>
#include <string_view>

namespace coda {

/// `text` with "\xHH" for each byte of a control character (C0, DEL, C1) that is not in `kept`, and for each byte that
/// is not part of well-formed UTF-8. Everything else stays unchanged, so the result of plain text is that text.
std::string printable(std::string_view text, std::string_view kept = "\n");

/// printable() of a text that comes in parts, as tokens do: a character's bytes may be spread over several of them.
class PrintableParts {
  public:
    /// `kept` must outlive this.
    explicit PrintableParts(std::string_view kept) : kept_(kept) {}

    /// What can be shown of the text so far and was not shown before.
    std::string add(std::string_view part);
    /// The text ends here: the bytes of a character that never became whole, escaped.
    std::string finish();

  private:
    std::string_view kept_;
    std::string begun_;  // the first bytes of a character
};

}  // namespace coda
