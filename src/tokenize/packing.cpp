#include "src/tokenize/packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "kernels/core/error.h"

namespace coda {

std::vector<std::vector<std::size_t>> pack_rows(const std::vector<std::size_t>& lengths, std::size_t row) {
    std::vector<std::size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
    std::vector<std::vector<std::size_t>> rows;
    std::set<std::pair<std::size_t, std::size_t>> room;  // {tokens, row} of rows that are not full
    for (const std::size_t item : order) {
        require(lengths[item] > 0 && lengths[item] <= row, "an item of ", lengths[item], " tokens in a row of ", row);
        auto best = room.lower_bound({lengths[item], 0});
        if (best == room.end()) {
            best = room.emplace(row, rows.size()).first;
            rows.emplace_back();
        }
        const auto [free, index] = *best;
        room.erase(best);
        rows[index].push_back(item);
        if (free > lengths[item]) room.emplace(free - lengths[item], index);
    }
    return rows;
}

}  // namespace coda
