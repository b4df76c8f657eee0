// Bytes that come in pieces, as text that can be shown: never half a character.
#pragma once

#include <string>
#include <string_view>

namespace coda {

/// Makes text of the bytes of tokens, of which one may end within a character. What add() and finish() return, put
/// together, is replace_invalid_utf8() of all bytes put together, which is how Hugging Face's `tokenizers` decode
/// byte-level tokens; every returned piece is valid UTF-8 by itself.
class Utf8Stream {
  public:
    /// The text that is settled by now. Bytes that may begin a character are held back, at most three.
    std::string add(std::string_view bytes);

    /// No more bytes come: U+FFFD where some are held back, else nothing.
    std::string finish();

  private:
    std::string held_;
};

}  // namespace coda
