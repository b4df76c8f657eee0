// What coda_generate writes: text while it is made or answers as JSON Lines, and the figures at the end.
#pragma once

#include <string>
#include <string_view>

#include "src/core/printable.h"
#include "src/generate/batch.h"

namespace coda {

/// A text to standard output, in pieces that are written at once. A model can write what a terminal obeys, so a
/// terminal gets it escaped; a file or pipe gets the text unchanged.
class TextOutput {
  public:
    TextOutput();
    /// `piece`: valid UTF-8. Throws Error where it cannot be written.
    void put(std::string_view piece);
    /// The text's last line ends here.
    void finish();

  private:
    bool to_terminal_;
    PrintableParts shown_{"\n\t"};
};

/// One line in one write. Throws Error where it cannot be written.
void put_answer(const GenerationAnswer& answer);

/// "12 prompt tokens in 3.1 ms | first token after 4.9 ms | 200 tokens, 812 tok/s, 2.50 per step, 42% of the memory's
/// 4.92 TB/s": without the parts that were not reached, without the tokens per step where no guess came true, and
/// without the share where the peak is not known.
std::string figures_line(const GenerationFigures& figures);

}  // namespace coda
