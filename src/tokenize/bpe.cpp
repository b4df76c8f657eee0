#include "src/tokenize/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>

namespace coda {
namespace {

// Up to here a scan of all ranks for each merge is faster than a heap.
constexpr std::size_t kShortWord = 64;
constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kKeptWorkspace = std::size_t{1} << 16;  // symbols

std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges) {
    const std::size_t size = std::bit_ceil(2 * merges.size() + 2);
    shift_ = 64 - std::countr_zero(size);
    entries_.resize(size);
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const std::uint64_t pair = pair_key(merges[rank].left, merges[rank].right);
        entry_of(pair) = {pair, static_cast<std::uint32_t>(rank), merges[rank].result};
    }
}

std::size_t MergeTable::index(std::uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15U) >> shift_; }

MergeTable::Entry& MergeTable::entry_of(std::uint64_t pair) {
    std::size_t i = index(pair);
    while (entries_[i].pair != kNoPair && entries_[i].pair != pair) i = (i + 1) & (entries_.size() - 1);
    return entries_[i];
}

const MergeTable::Entry* MergeTable::find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t pair = pair_key(left, right);
    for (std::size_t i = index(pair);; i = (i + 1) & (entries_.size() - 1)) {
        const Entry& entry = entries_[i];
        if (entry.pair == pair) return &entry;
        if (entry.pair == kNoPair) return nullptr;
    }
}

void PairMerger::merge(std::span<const std::uint32_t> symbols, std::vector<std::uint32_t>& out,
                       std::vector<std::uint32_t>* lengths) {
    if (symbols.empty()) return;
    if (symbols.size() <= kShortWord && lengths == nullptr) {
        merge_short(symbols, out);
    } else {
        merge_long(symbols, out, lengths);
    }
}

void PairMerger::merge_short(std::span<const std::uint32_t> symbols, std::vector<std::uint32_t>& out) {
    std::array<std::uint32_t, kShortWord> ids, ranks, results;
    std::size_t count = symbols.size();
    std::copy(symbols.begin(), symbols.end(), ids.begin());
    const auto look_up = [&](std::size_t i) {
        const MergeTable::Entry* merge = merges_.find(ids[i], ids[i + 1]);
        ranks[i] = merge != nullptr ? merge->rank : kNoRank;
        results[i] = merge != nullptr ? merge->result : 0;
    };
    for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
    while (count > 1) {
        const auto* least = std::min_element(ranks.data(), ranks.data() + count - 1);
        if (*least == kNoRank) break;
        const auto i = static_cast<std::size_t>(least - ranks.data());
        ids[i] = results[i];
        for (auto* list : {&ids, &ranks, &results}) {
            std::copy(list->begin() + i + 2, list->begin() + count, list->begin() + i + 1);
        }
        --count;
        if (i + 1 < count) look_up(i);
        if (i > 0) look_up(i - 1);
    }
    out.insert(out.end(), ids.begin(), ids.begin() + count);
}

void PairMerger::push(std::int32_t left) {
    if (left < 0) return;
    const Symbol& symbol = symbols_[static_cast<std::size_t>(left)];
    if (symbol.next < 0) return;
    const MergeTable::Entry* merge = merges_.find(symbol.id, symbols_[static_cast<std::size_t>(symbol.next)].id);
    if (merge == nullptr) return;
    heap_.push_back({merge->rank, left, merge->result});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void PairMerger::merge_long(std::span<const std::uint32_t> symbols, std::vector<std::uint32_t>& out,
                            std::vector<std::uint32_t>* lengths) {
    const auto count = static_cast<std::int32_t>(symbols.size());
    symbols_.resize(symbols.size());
    heap_.clear();
    for (std::int32_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        symbols_[at] = {symbols[at], 1, i - 1, i + 1 < count ? i + 1 : -1};
    }
    for (std::int32_t i = 0; i < count; ++i) push(i);
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        const Candidate best = heap_.back();
        heap_.pop_back();
        Symbol& left = symbols_[static_cast<std::size_t>(best.left)];
        if (left.length == 0 || left.next < 0) continue;
        // Symbols only grow, so the pair is still the one that was pushed exactly if its merge gives the same token.
        Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
        const MergeTable::Entry* merge = merges_.find(left.id, right.id);
        if (merge == nullptr || merge->result != best.result) continue;
        left.id = best.result;
        left.length += right.length;
        left.next = right.next;
        right.length = 0;
        if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = best.left;
        push(left.previous);
        push(best.left);
    }
    for (std::int32_t i = 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
        out.push_back(symbols_[static_cast<std::size_t>(i)].id);
        if (lengths != nullptr) lengths->push_back(symbols_[static_cast<std::size_t>(i)].length);
    }
    if (symbols_.capacity() > kKeptWorkspace) {  // one giant word must not hold memory for the rest of the run
        symbols_ = {};
        heap_ = {};
    }
}

}  // namespace coda
