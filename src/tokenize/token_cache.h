// What a thread has already encoded: pre-token -> ids. Text repeats its words, so nearly all of them are found here.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coda {

/// 64 well-mixed bits of a short text.
inline std::uint64_t hash_bytes(std::string_view bytes) {
    constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15U;
    std::uint64_t hash = bytes.size() * kFactor;
    const auto mix = [&](std::uint64_t word) {
        hash = (hash ^ word) * kFactor;
        hash ^= hash >> 32;
    };
    std::uint64_t word = 0;
    while (bytes.size() >= sizeof word) {
        std::memcpy(&word, bytes.data(), sizeof word);
        mix(word);
        bytes.remove_prefix(sizeof word);
    }
    if (bytes.size() >= 4) {  // two reads that may overlap
        std::uint32_t head = 0, tail = 0;
        std::memcpy(&head, bytes.data(), sizeof head);
        std::memcpy(&tail, bytes.data() + bytes.size() - sizeof tail, sizeof tail);
        mix(std::uint64_t{head} << 32 | tail);
    } else if (!bytes.empty()) {
        const auto at = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(bytes[i])}; };
        mix(at(0) << 16 | at(bytes.size() / 2) << 8 | at(bytes.size() - 1));
    }
    return hash;
}

/// A hash table that forgets everything when it is full, which bounds its memory and changes no result.
class TokenCache {
  public:
    static constexpr std::size_t kLongestKey = 96;  // bytes; longer pre-tokens hardly repeat

    TokenCache() : entries_(kSlots) {}

    /// The ids kept for `key`; null if none are kept. Valid until the next insert().
    const std::uint32_t* find(std::string_view key, std::uint64_t hash, std::uint32_t& count) const {
        for (std::size_t i = hash & (kSlots - 1);; i = (i + 1) & (kSlots - 1)) {
            const Entry& entry = entries_[i];
            if (entry.count == 0) return nullptr;
            if (entry.hash == hash && entry.length == key.size() &&
                std::memcmp(keys_.data() + entry.key, key.data(), key.size()) == 0) {
                count = entry.count;
                return ids_.data() + entry.ids;
            }
        }
    }

    /// Keeps `ids`, not empty, for a `key` that is not there.
    void insert(std::string_view key, std::uint64_t hash, std::span<const std::uint32_t> ids) {
        if (used_ == kSlots / 2) {
            entries_.assign(kSlots, {});
            keys_.clear();
            ids_.clear();
            used_ = 0;
        }
        std::size_t i = hash & (kSlots - 1);
        while (entries_[i].count != 0) i = (i + 1) & (kSlots - 1);
        entries_[i] = {hash, static_cast<std::uint32_t>(keys_.size()), static_cast<std::uint32_t>(key.size()),
                       static_cast<std::uint32_t>(ids_.size()), static_cast<std::uint32_t>(ids.size())};
        keys_.append(key);
        ids_.insert(ids_.end(), ids.begin(), ids.end());
        ++used_;
    }

  private:
    static constexpr std::size_t kSlots = std::size_t{1} << 17;
    static_assert(std::has_single_bit(kSlots));

    struct Entry {
        std::uint64_t hash = 0;
        std::uint32_t key = 0, length = 0;  // in keys_
        std::uint32_t ids = 0, count = 0;   // in ids_; 0 marks an unused entry
    };
    std::vector<Entry> entries_;
    std::string keys_;
    std::vector<std::uint32_t> ids_;
    std::size_t used_ = 0;
};

}  // namespace coda
