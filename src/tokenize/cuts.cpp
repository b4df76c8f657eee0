#include "src/tokenize/cuts.h"

#include "src/core/utf8.h"

namespace coda {
namespace {

bool is_visible(char c) { return c > ' ' && c <= '~'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// The place before text[at] as a cut of a kind; length 0 for none.
std::size_t line_cut(std::string_view text, std::size_t at) {
    if (text[at - 1] != '\n') return 0;
    const CodePoint next = decode_utf8(text.substr(at));
    return is_space(next.value) ? 0 : next.length;
}

std::size_t word_cut(std::string_view text, std::size_t at) {
    return text[at] == ' ' && is_visible(text[at - 1]) && is_visible(text[at + 1]) ? 1 : 0;
}

std::size_t digit_cut(std::string_view text, std::size_t at) {
    return is_digit(text[at - 1]) && is_letter(text[at]) ? 1 : 0;
}

}  // namespace

Cut find_cut(const Tokenizer& tokenizer, std::string_view text) {
    // An added token that begins before the end of the known text may continue after it.
    const std::size_t margin = tokenizer.longest_added_token() + 4;
    if (!tokenizer.can_be_cut() || text.size() <= margin) return {};
    for (const auto kind : {line_cut, word_cut, digit_cut}) {
        for (std::size_t at = text.size() - margin; at > 0; --at) {
            const std::size_t lookahead = kind(text, at);
            if (lookahead > 0 && !tokenizer.added_token_touches(text, at, at + lookahead)) return {at, lookahead};
        }
    }
    return {};
}

}  // namespace coda
