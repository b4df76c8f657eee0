#include "src/tokenize/cuts.h"

#include <utf8proc.h>

#include <algorithm>
#include <string>

#include "src/core/utf8.h"

namespace coda {
namespace {

constexpr std::size_t kLongestCharacter = 4;  // bytes

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

}  // namespace

TextCutter::TextCutter(const Tokenizer& tokenizer) : tokenizer_(tokenizer), nfc_(tokenizer.normalizer().has_nfc()) {
    for (const PreTokenizerStep& step : tokenizer.steps()) {
        const bool splits = step.kind == PreTokenizerStep::Kind::split;
        pairs_.push_back(splits ? std::make_unique<RegexPairs>(step.regex, step.where) : nullptr);
    }
}

bool TextCutter::derive(char32_t x, char32_t y) const {
    if (is_space(x) && is_space(y)) return false;
    std::string storage, left = tokenizer_.normalizer().replaced(utf8_of(x)),
                         right = tokenizer_.normalizer().replaced(utf8_of(y));
    if (left.empty() || right.empty()) return false;
    const auto& steps = tokenizer_.steps();
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const PreTokenizerStep& step = steps[i];
        if (step.kind == PreTokenizerStep::Kind::metaspace) {
            if (i > 0) return false;
            if (left == " ") left = step.replacement;
            if (right == " ") right = step.replacement;
            continue;
        }
        const char32_t before = last_code_point(left, left.size()).value, after = decode_utf8(right).value;
        const PairFate fate = pairs_[i]->fate(before, after);
        if (fate == PairFate::untouched) continue;
        if (fate == PairFate::unknown) return false;
        const bool kept =
            step.behavior == SplitBehavior::isolated || step.behavior == SplitBehavior::removed ||
            // A match joins what follows it, and never a match what it follows.
            (step.behavior == SplitBehavior::merged_with_next && !step.invert && pairs_[i]->is_match(after));
        return kept;
    }
    const BpeModel& model = tokenizer_.model();
    return !model.word_start().empty() && right.starts_with(model.word_start()) && model.divides_after(left);
}

bool TextCutter::divides(char32_t x, char32_t y) {
    const auto [known, is_new] = known_.emplace(std::pair(x, y), false);
    if (is_new) known->second = derive(x, y);
    return known->second;
}

bool TextCutter::composes(std::string_view text, std::size_t at, char32_t y, std::size_t length) const {
    if (!nfc_) return false;
    const CodePoint next = decode_utf8(text.substr(at + length));
    return joins_leftward(y) || next.length == 0 || joins_leftward(next.value);
}

bool TextCutter::added_token_touches(std::string_view text, std::size_t begin, std::size_t end) const {
    if (tokenizer_.added().touches(text, begin, end)) return true;
    const AddedTokenFinder& normalized = tokenizer_.normalized_added();
    if (normalized.longest() == 0) return false;
    // What the normalizer makes of the surroundings, in which such a token would lie. NFC makes a text shorter by no
    // more than this.
    const std::size_t reach = 4 * normalized.longest() + 4 * kLongestCharacter;
    std::size_t first = begin - std::min(begin, reach);
    while (first < begin && !is_ascii(text[first])) ++first;
    std::size_t last = std::min(text.size(), end + reach);
    while (last > end && last < text.size() && !is_ascii(text[last])) --last;
    std::string left_storage, right_storage;
    const std::string_view raw_right = text.substr(begin, last - begin);
    std::string whole(tokenizer_.normalizer().apply(text.substr(first, begin - first), false, left_storage));
    const std::size_t place = whole.size();
    whole += tokenizer_.normalizer().apply(raw_right.substr(0, valid_utf8(raw_right)), false, right_storage);
    return normalized.touches(whole, place, place + kLongestCharacter);
}

Cut TextCutter::find(std::string_view text) {
    // An added token that begins before the end of the known text may continue after it.
    const std::size_t margin =
        std::max(tokenizer_.added().longest(), 4 * tokenizer_.normalized_added().longest()) + 6 * kLongestCharacter;
    if (text.size() <= margin) return {};
    for (const bool lines : {true, false}) {
        for (std::size_t at = text.size() - margin; at > 0; --at) {
            const char before = text[at - 1];
            if (lines ? before != '\n' : !is_ascii(before)) continue;
            const CodePoint next = decode_utf8(text.substr(at));
            if (next.length == 0 || !divides(static_cast<unsigned char>(before), next.value)) continue;
            if (composes(text, at, next.value, next.length)) continue;
            if (!added_token_touches(text, at, at + next.length)) return {at, next.length};
        }
    }
    return {};
}

}  // namespace coda
