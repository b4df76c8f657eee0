// What a template may cost. Templates come with downloaded models, and a hostile one must end in an error.
#pragma once

#include <cstdint>

#include "kernels/core/error.h"
#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/tokenize/chat/origin_text.h"

namespace coda {

struct ChatLimits {
    std::size_t source = std::size_t{1} << 20;   // bytes of a template
    int nesting = 100;                           // of blocks and parentheses in it
    int calls = 100;                             // of macros within each other
    std::int64_t nodes = 10'000'000;             // evaluated in a rendering; large values count as several
    std::int64_t range = 100'000;                // elements of range()
    std::size_t output = std::size_t{16} << 20;  // bytes of a text, and
    std::size_t output_per_message_byte = 64;    // as many more for each byte of the messages
};

namespace jinja {

class Budget {
  public:
    Budget(const ChatLimits& limits, std::size_t message_bytes)
        : limits_(limits),
          nodes_(limits.nodes),
          next_look_(limits.nodes - kNodesBetweenLooks),
          text_(limits.output + limits.output_per_message_byte * message_bytes) {}

    const ChatLimits& limits() const { return limits_; }

    void spend(std::size_t nodes) {
        nodes_ -= static_cast<std::int64_t>(nodes);
        require(nodes_ >= 0, "the template evaluates more than ", limits_.nodes, " nodes");
        if (nodes_ >= next_look_) return;
        next_look_ = nodes_ - kNodesBetweenLooks;
        if (interrupted()) throw InterruptedError("interrupted while a chat template was rendered");
    }
    void check_text(std::size_t bytes) const {
        require(bytes <= text_, "the template makes a text of more than ", text_, " bytes");
    }
    /// A text of so many bytes is made.
    void spend_text(std::size_t bytes) {
        check_text(bytes);
        spend(1 + bytes / 64);
    }
    void spend_text(const OriginText& text) {
        spend_text(text.size());
        spend(text.runs().size() / 4);
    }

  private:
    const ChatLimits& limits_;
    static constexpr std::int64_t kNodesBetweenLooks = 1 << 16;
    std::int64_t nodes_, next_look_;
    std::size_t text_;
};

}  // namespace jinja
}  // namespace coda
