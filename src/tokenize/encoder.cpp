#include "src/tokenize/encoder.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "kernels/core/error.h"

namespace coda {
namespace {

/// The same text may be cached after each step: this tells the entries apart, as the hash is part of the key.
std::uint64_t hash_at(std::size_t step, std::string_view text) {
    return hash_bytes(text) + std::uint64_t{0x9E3779B97F4A7C15U} * step;
}

}  // namespace

Encoder::Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), merger_(tokenizer.model().merges()) {
    for (std::size_t i = 0; i < tokenizer.steps().size(); ++i) {
        const bool splits = tokenizer.steps()[i].kind == PreTokenizerStep::Kind::split;
        splits_ = splits_ || splits;
        scanners_.push_back(splits ? std::make_unique<RegexScanner>(tokenizer.regex(i)) : nullptr);
    }
}

Encoder::Piece Encoder::Piece::part(std::size_t begin, std::size_t end) const {
    return {text.substr(begin, end - begin),
            std::min(end, size) - begin,
            begins || begin > 0,
            begins_text && begin == 0,
            ranges,
            origin + begin};
}

/// Calls gap(piece) for the stretches between added tokens and appends the tokens' ids.
template <class Gap>
void Encoder::between(const AddedTokenFinder& finder, Piece piece, std::vector<std::uint32_t>& out, Gap&& gap) {
    const std::string_view text = piece.text.substr(0, piece.size);
    const std::span<const TextRange> plain =
        piece.ranges != nullptr ? std::span<const TextRange>(piece.ranges->plain) : std::span<const TextRange>();
    std::size_t from = 0, taken = 0;
    while (const auto found = finder.find(text, from, taken, plain, piece.origin)) {
        if (found->begin > taken) gap(piece.part(taken, found->begin));
        out.push_back(found->id);
        if (follows_) {
            // The white space that it takes may count, but does not make it a message's.
            const TextRanges& ranges = *piece.ranges;
            const std::size_t origin = piece.origin;
            const int own = ranges.touched(origin + found->own, origin + found->next) & kTouchesPlain;
            const int all = ranges.touched(origin + found->begin, origin + found->end) & kTouchesCounted;
            touched_.push_back(static_cast<std::uint8_t>(own | all));
        }
        taken = found->end;
        from = found->next;
    }
    if (taken < piece.size) gap(piece.part(taken, piece.text.size()));
}

void Encoder::encode(std::string_view text, TextPart part, std::vector<std::uint32_t>& out) {
    const Piece whole{text, text.size() - part.lookahead, part.begins, part.begins};
    between(tokenizer_.added(), whole, out, [&](const Piece& gap) { normalize(gap, out); });
}

void Encoder::encode(std::string_view text, const TextRanges& ranges, std::vector<std::uint32_t>& out,
                     std::vector<std::uint8_t>* touched) {
    struct Following {
        explicit Following(bool& flag) : flag_(flag) { flag_ = true; }
        ~Following() { flag_ = false; }
        Following(const Following&) = delete;
        Following& operator=(const Following&) = delete;
        bool& flag_;
    };
    std::vector<std::uint32_t> ids;
    {
        const Following following(follows_);
        touched_.clear();
        between(tokenizer_.added(), {text, text.size(), true, true, &ranges}, ids,
                [&](const Piece& gap) { normalize(gap, ids); });
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::size_t before = out.size();
        // What is not found as a special token can still be one, as a word of the vocabulary or by merges.
        const auto is_mark = [&](std::uint32_t id) {
            return tokenizer_.is_special(id) && !tokenizer_.model().is_unknown(id);
        };
        if ((touched_[i] & kTouchesPlain) != 0 && is_mark(ids[i])) {
            tokenizer_.model().symbols(tokenizer_.content_of_added(ids[i]), symbols_);
            std::copy_if(symbols_.begin(), symbols_.end(), std::back_inserter(out),
                         [&](std::uint32_t id) { return !is_mark(id); });
        } else {
            out.push_back(ids[i]);
        }
        if (touched != nullptr) touched->insert(touched->end(), out.size() - before, touched_[i]);
    }
}

void Encoder::normalize(Piece piece, std::vector<std::uint32_t>& out) {
    std::string storage, lookahead_storage;
    const std::string_view given = piece.text.substr(0, piece.size), seen = piece.text.substr(piece.size);
    TextRanges ranges;
    if (piece.ranges != nullptr) {
        ranges = piece.ranges->within(piece.origin, piece.origin + piece.size);
        piece.ranges = &ranges;
        piece.origin = 0;
    }
    const std::string_view text =
        tokenizer_.normalizer().apply(given, piece.begins, storage, piece.ranges != nullptr ? &ranges : nullptr);
    const std::string_view lookahead = tokenizer_.normalizer().apply(seen, false, lookahead_storage);
    if (text.data() != given.data() || lookahead.data() != seen.data()) {
        piece.size = text.size();
        if (text.data() == given.data()) storage = text;
        storage += lookahead;
        piece.text = storage;
    }
    between(tokenizer_.normalized_added(), piece, out, [&](const Piece& gap) { run(0, gap, out); });
}

/// Appends what make() appends, from the cache where `text` has been there before.
template <class Make>
void Encoder::cached(std::size_t index, std::string_view text, std::vector<std::uint32_t>& out, Make&& make) {
    const std::uint64_t hash = hash_at(index, text);
    std::uint32_t count = 0;
    if (const std::uint32_t* ids = cache_.find(text, hash, count)) {
        out.insert(out.end(), ids, ids + count);
        return;
    }
    const std::size_t before = out.size();
    make();
    if (out.size() > before) cache_.insert(text, hash, std::span(out).subspan(before));
}

/// Encodes a whole piece that does not begin the text from a pre-tokenizer's step on. Equal ones have equal tokens.
void Encoder::next(std::size_t index, std::string_view text, std::vector<std::uint32_t>& out) {
    const auto encode = [&] { run(index, {text, text.size(), true, false}, out); };
    if (text.size() > TokenCache::kLongestKey) return encode();
    cached(index, text, out, encode);
}

/// Encodes a piece of which all bytes have the same bits, or that has no ranges, and says whether it is one.
bool Encoder::run_alike(std::size_t index, Piece piece, std::vector<std::uint32_t>& out) {
    if (piece.ranges == nullptr || !piece.ranges->alike(piece.origin, piece.origin + piece.size)) return false;
    const std::uint8_t touched = piece.ranges->touched(piece.origin, piece.origin + piece.size);
    piece.ranges = nullptr;
    run(index, piece, out);
    touched_.resize(out.size(), touched);
    return true;
}

void Encoder::run(std::size_t index, Piece piece, std::vector<std::uint32_t>& out) {
    if (run_alike(index, piece, out)) return;
    if (index == scanners_.size()) return words(piece, out);
    if (scanners_[index] != nullptr) return split(index, piece, out);
    metaspace(index, piece, out);
}

/// Calls visit(begin, end, match) for the matches in a piece and what lies between them, as far as it is encoded.
template <class Visit>
void each_match(RegexScanner& scanner, std::string_view text, std::size_t size, Visit&& visit) {
    for (std::size_t at = 0; at < size;) {
        const auto match = scanner.find(text, at);
        const std::size_t begin = match ? match->begin : text.size();
        if (begin > at) visit(at, begin, false);
        if (begin >= size) return;
        visit(begin, match->end, true);
        at = match->end;
    }
}

void Encoder::split(std::size_t index, Piece piece, std::vector<std::uint32_t>& out) {
    const PreTokenizerStep& rule = tokenizer_.steps()[index];
    RegexScanner& scanner = *scanners_[index];
    const bool usual = piece.begins && !piece.begins_text;
    const auto emit = [&](std::size_t begin, std::size_t end) {
        if (end <= piece.size && (begin > 0 || usual) && piece.ranges == nullptr) {
            return next(index + 1, piece.text.substr(begin, end - begin), out);
        }
        if (begin < piece.size) run(index + 1, piece.part(begin, end), out);
    };
    if (rule.behavior == SplitBehavior::isolated || rule.behavior == SplitBehavior::removed) {
        const bool removes = rule.behavior == SplitBehavior::removed;
        return each_match(scanner, piece.text, piece.size, [&](std::size_t begin, std::size_t end, bool match) {
            if (!removes || match == rule.invert) emit(begin, end);
        });
    }
    std::size_t waiting = 0, waiting_end = 0;  // a stretch that what follows may join
    bool waiting_match = false;
    each_match(scanner, piece.text, piece.size, [&](std::size_t begin, std::size_t end, bool match) {
        match = match != rule.invert;
        bool joins = match == waiting_match;
        if (rule.behavior == SplitBehavior::merged_with_previous) joins = match && !waiting_match;
        if (rule.behavior == SplitBehavior::merged_with_next) joins = !match && waiting_match;
        if (!joins || waiting_end == waiting) {
            if (waiting_end > waiting) emit(waiting, waiting_end);
            waiting = begin;
        }
        waiting_end = end;
        waiting_match = match;
    });
    if (waiting_end > waiting) emit(waiting, waiting_end);
}

void Encoder::metaspace(std::size_t index, Piece piece, std::vector<std::uint32_t>& out) {
    const PreTokenizerStep& rule = tokenizer_.steps()[index];
    TextRanges ranges;
    if (piece.ranges != nullptr) {
        ranges = piece.ranges->within(piece.origin, piece.origin + piece.size);
        ranges.after_replace(piece.text, " ", rule.replacement.size());
    }
    std::string changed = replace_all(piece.text.substr(0, piece.size), " ", rule.replacement);
    const bool prepends =
        rule.prepend == PrependScheme::always || (rule.prepend == PrependScheme::first && piece.begins_text);
    if (prepends && piece.begins && !changed.starts_with(rule.replacement)) {
        changed.insert(0, rule.replacement);
        ranges.after_prepend(rule.replacement.size());
    }
    const std::size_t size = changed.size();
    changed += replace_all(piece.text.substr(piece.size), " ", rule.replacement);
    run(index + 1, {changed, size, piece.begins, piece.begins_text, piece.ranges != nullptr ? &ranges : nullptr}, out);
}

/// Encodes a piece that no step divides further, in words where that changes no token.
void Encoder::words(Piece piece, std::vector<std::uint32_t>& out) {
    const BpeModel& model = tokenizer_.model();
    const std::string& start = model.word_start();
    const std::string_view text = piece.text.substr(0, piece.size);
    require(piece.whole() ||
                (!start.empty() && piece.text.substr(piece.size).starts_with(start) && model.divides_after(text)),
            tokenizer_.file(), ": a token lies across a place where the text was cut");
    const bool divided = !start.empty() && (!splits_ || text.size() > TokenCache::kLongestKey);
    if (!divided) return piece.ranges != nullptr ? word_in_part(piece, out) : word(text, out);
    std::size_t begin = 0;
    const auto take = [&](std::size_t end) {
        const std::string_view next = text.substr(begin, end - begin);
        const std::size_t from = std::exchange(begin, end);
        if (piece.ranges != nullptr) return word_in_part(piece.part(from, end), out);
        if (next.size() > TokenCache::kLongestKey) return word(next, out);
        cached(scanners_.size() + 1, next, out, [&] { word(next, out); });
    };
    for (std::size_t at = text.find(start, 1); at < text.size(); at = text.find(start, at + start.size())) {
        if (model.divides_after(text.substr(begin, at - begin))) take(at);
    }
    take(text.size());
}

void Encoder::word(std::string_view word, std::vector<std::uint32_t>& out) {
    const BpeModel& model = tokenizer_.model();
    if (const auto whole = model.whole(word)) return out.push_back(*whole);
    model.symbols(word, symbols_);
    merger_.merge(symbols_, out);
}

/// The same of a word whose bytes have different bits.
void Encoder::word_in_part(const Piece& word, std::vector<std::uint32_t>& out) {
    const BpeModel& model = tokenizer_.model();
    const std::string_view text = word.text.substr(0, word.size);
    std::vector<TextRange> places{{0, word.size}};  // of each symbol
    std::vector<std::uint32_t> lengths{1};          // of each token, in symbols
    if (const auto whole = model.whole(text)) {
        out.push_back(*whole);
    } else {
        lengths.clear();
        model.symbols(text, symbols_, &places);
        merger_.merge(symbols_, out, &lengths);
    }
    std::size_t symbol = 0;
    for (const std::uint32_t length : lengths) {
        const std::size_t begin = places[symbol].begin, end = places[symbol + length - 1].end;
        touched_.push_back(word.ranges->touched(word.origin + begin, word.origin + end));
        symbol += length;
    }
}

}  // namespace coda
