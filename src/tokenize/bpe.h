// Byte-pair encoding of one piece of text: the adjacent pair whose merge has the lowest rank, the leftmost of equals,
// becomes one token, until no pair has a merge.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/tokenize/tokenizer_spec.h"

namespace coda {

/// (left, right) -> rank and result: open addressing, at most half full.
class MergeTable {
  public:
    /// If a pair has two merges, the later one holds.
    explicit MergeTable(const std::vector<Merge>& merges);

    struct Entry {
        std::uint64_t pair = kNoPair;
        std::uint32_t rank = 0, result = 0;
    };
    /// Null where the pair has no merge.
    const Entry* find(std::uint32_t left, std::uint32_t right) const;

  private:
    static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
    Entry& entry_of(std::uint64_t pair);
    std::size_t index(std::uint64_t pair) const;

    std::vector<Entry> entries_;
    int shift_ = 0;
};

/// Merges with one table. Each thread has its own, as it keeps its work space. The table must outlive it.
class PairMerger {
  public:
    explicit PairMerger(const MergeTable& merges) : merges_(merges) {}

    /// Appends what the tokens of `symbols` are merged to; to `lengths`, of how many symbols each is made.
    void merge(std::span<const std::uint32_t> symbols, std::vector<std::uint32_t>& out,
               std::vector<std::uint32_t>* lengths = nullptr);

  private:
    void merge_short(std::span<const std::uint32_t> symbols, std::vector<std::uint32_t>& out);
    void merge_long(std::span<const std::uint32_t> symbols, std::vector<std::uint32_t>& out,
                    std::vector<std::uint32_t>* lengths);

    struct Symbol {  // of a doubly linked list; a symbol merged into its left neighbour has length 0
        std::uint32_t id, length;
        std::int32_t previous, next;
    };
    struct Candidate {
        std::uint32_t rank;
        std::int32_t left;
        std::uint32_t result;
        bool operator>(const Candidate& other) const {
            return rank != other.rank ? rank > other.rank : left > other.left;
        }
    };
    void push(std::int32_t left);

    const MergeTable& merges_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
};

}  // namespace coda
