#include "kernels/ops/choose_token/choose.h"

#include <algorithm>
#include <vector>

#include "kernels/core/error.h"

namespace coda::sampling {

namespace {

/// One row: its logits and their masses.
class Row {
  public:
    Row(std::span<const float> logits, float largest, float scale) : logits_(logits), masses_(logits.size()) {
        for (std::size_t i = 0; i < logits.size(); ++i) masses_[i] = mass_of(largest - logits[i], scale);
    }

    std::uint64_t size() const { return logits_.size(); }
    std::uint64_t total() const {
        std::uint64_t sum = 0;
        for (const std::uint64_t mass : masses_) sum += mass;
        return sum;
    }

    CutSearch search(bool by_mass, std::uint64_t goal) const {
        CutSearch search;
        for (int round = 0; round < kRounds; ++round) {
            Bin bins[kBins] = {};
            for (std::size_t i = 0; i < logits_.size(); ++i) {
                const std::uint32_t key = key_of(logits_[i]);
                if (!search.matches(key)) continue;
                Bin& bin = bins[search.bin(key)];
                ++bin.count;
                bin.mass += masses_[i];
            }
            search.narrow(bins, by_mass, goal);
        }
        return search;
    }

    /// fn(id, mass) of the tokens that stay, by id, until it returns true; that id, or -1.
    template <class Fn>
    std::int32_t find(const Cut& cut, std::uint64_t min_mass, const Fn& fn) const {
        std::uint64_t ties = 0;
        for (std::size_t i = 0; i < logits_.size(); ++i) {
            const std::uint32_t key = key_of(logits_[i]);
            if (key < cut.key || (key == cut.key && ties++ >= cut.ties) || masses_[i] < min_mass) continue;
            if (fn(masses_[i])) return static_cast<std::int32_t>(i);
        }
        return -1;
    }

  private:
    std::span<const float> logits_;
    std::vector<std::uint64_t> masses_;
};

}  // namespace

std::int32_t choose(std::span<const float> logits, const Rules& rules, std::uint64_t draw) {
    require(!logits.empty() && static_cast<std::int64_t>(logits.size()) <= kLargestVocab, "a choice among ",
            logits.size(), " tokens: must be 1 to ", kLargestVocab);
    const auto largest = std::max_element(logits.begin(), logits.end());
    if (rules.greedy) return static_cast<std::int32_t>(largest - logits.begin());

    const Row row(logits, *largest, rules.scale);
    Cut cut;
    std::uint64_t total = 0;
    const bool by_count = rules.top_k != 0 && rules.top_k < row.size(), by_mass = rules.top_p < kOne;
    if (!by_count && by_mass) total = row.total();
    const auto narrow = [&](bool of_masses, std::uint64_t goal) {
        const CutSearch search = row.search(of_masses, goal);
        const std::uint64_t each = mass_of(*largest - value_of(search.prefix), rules.scale);
        cut = search.cut(of_masses, goal, each);
        total = search.total(cut, each);
    };
    if (by_count) narrow(false, rules.top_k);
    if (by_mass) narrow(true, target_of(total, rules.top_p));

    total = 0;
    row.find(cut, rules.min_mass, [&](std::uint64_t mass) {
        total += mass;
        return false;
    });
    const std::uint64_t point = point_of(draw, total);
    std::uint64_t cumulated = 0;
    return row.find(cut, rules.min_mass, [&](std::uint64_t mass) {
        cumulated += mass;
        return cumulated > point;
    });
}

}  // namespace coda::sampling
