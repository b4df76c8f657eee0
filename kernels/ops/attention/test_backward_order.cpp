// The order of backward attention's key blocks: every block once, the blocks that add to a dQ tile in the order in
// which they add, and tiles still in L2 when they are needed again. Needs no GPU.
#include <algorithm>
#include <functional>
#include <list>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kernels/hopper/attention/backward_tile.h"
#include "kernels/hopper/sm90/device_model.h"
#include "tests/catch.h"

using namespace coda;
using hopper::BackwardOrder;
using hopper::BackwardTile;
using hopper::kMultiprocessors;

namespace {

using Tile = BackwardTile<64, false>;

/// Q, dO and dQ sums of one query tile of one head.
constexpr std::int64_t kTileBytes = 64 << 10;
constexpr std::int64_t kCacheBytes = 36 << 20;  // of an H100's 50 MB, some lines of which L2 keeps twice

/// A cache that drops what was used longest ago.
class Cache {
  public:
    /// Whether the tile is there; afterwards it is.
    bool use(int tile) {
        const auto found = places_.find(tile);
        const bool hit = found != places_.end();
        if (hit) used_.erase(found->second);
        used_.push_front(tile);
        places_[tile] = used_.begin();
        if (static_cast<std::int64_t>(used_.size()) * kTileBytes > kCacheBytes) {
            places_.erase(used_.back());
            used_.pop_back();
        }
        return hit;
    }

  private:
    std::list<int> used_;
    std::unordered_map<int, std::list<int>::iterator> places_;
};

/// The share of steps whose tile has to come from DRAM. A processor takes the next block when it is free; a block's
/// beginning and end take as long as two steps.
double misses(const BackwardOrder& order, std::int64_t seq_len, int group) {
    constexpr int kPerBlock = Tile::kKeys / Tile::kQueries;
    const auto tiles = static_cast<int>(seq_len / Tile::kQueries);
    std::priority_queue<int, std::vector<int>, std::greater<>> free;
    for (int processor = 0; processor < kMultiprocessors; ++processor) free.push(0);
    std::vector<std::pair<int, int>> uses;  // time, tile
    for (int i = 0; i < order.count(); ++i) {
        const BackwardOrder::Work work = order.at(i);
        int time = free.top() + 1;
        free.pop();
        for (int tile = tiles - 1; tile >= work.key_block * kPerBlock; --tile)
            for (int head = 0; head < group; ++head)
                uses.emplace_back(time++, (work.pair * group + head) * tiles + tile);
        free.push(time + 1);
    }
    std::stable_sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    Cache cache;
    std::int64_t missed = 0;
    for (const auto& [time, tile] : uses) missed += cache.use(tile) ? 0 : 1;
    return static_cast<double>(missed) / static_cast<double>(uses.size());
}

/// The same over the least possible: every tile comes from DRAM once.
double excess(const BackwardOrder& order, std::int64_t seq_len, int group) {
    const double key_blocks = order.key_blocks;
    const double least = 2 / (key_blocks + 1);
    return misses(order, seq_len, group) / least;
}

}  // namespace

TEST_CASE("backward attention's order has every block once, those of a pair from the first keys on") {
    for (const BackwardOrder order :
         {BackwardOrder{1, 1, 1, 0}, BackwardOrder{7, 3, 2, 2}, BackwardOrder{5, 8, 3, 6}, BackwardOrder{5, 8, 3, 3},
          BackwardOrder{16, 4, 4, 4}, BackwardOrder{16, 4, 6, 0}, hopper::backward_order<Tile>(1024, 384, 1),
          hopper::backward_order<BackwardTile<128, false>>(2048, 100, 3),
          hopper::backward_order<BackwardTile<128, false>>(8192, 6, 8),
          hopper::backward_order<BackwardTile<64, true>>(2048, 100, 3),
          hopper::backward_order<BackwardTile<128, true>>(8192, 6, 8)}) {
        std::set<std::tuple<int, int>> seen;
        std::vector<int> next(static_cast<std::size_t>(order.pairs));
        for (int i = 0; i < order.count(); ++i) {
            const BackwardOrder::Work work = order.at(i);
            REQUIRE((work.pair >= 0 && work.pair < order.pairs));
            CHECK(work.key_block == next[static_cast<std::size_t>(work.pair)]++);
            CHECK(seen.emplace(work.key_block, work.pair).second);
        }
        CHECK(static_cast<int>(seen.size()) == order.key_blocks * order.pairs);
    }
}

TEST_CASE("backward attention finds what it adds to in L2, in short sequences as well") {
    // One head to a key/value head, as in GPT-2.
    for (const std::int64_t seq_len : {512, 1024, 2048, 4096}) {
        const int pairs = static_cast<int>(384 * 1024 / seq_len);
        BackwardOrder order = hopper::backward_order<Tile>(seq_len, pairs, 1);
        INFO("T " << seq_len << ", sections of " << order.section << " of " << pairs << " pairs");
        CHECK(excess(order, seq_len, 1) <= 1.2);
        // What sections are for.
        order.section = pairs;
        order.regular = 0;
        CHECK(excess(order, seq_len, 1) > 2);
    }
}

TEST_CASE("backward attention's last section has a block for every second SM where there are many blocks") {
    for (const std::int64_t seq_len : {1, 130, 1024, 2048, 8192, 131072})
        for (const int pairs : {1, 8, 48, 384})
            for (const int group : {1, 4, 8}) {
                const BackwardOrder order = hopper::backward_order<BackwardTile<128, false>>(seq_len, pairs, group);
                INFO("T " << seq_len << ", " << pairs << " pairs of " << group << ": " << order.regular
                          << " in sections of " << order.section);
                REQUIRE(order.section >= 1);
                CHECK(order.regular % order.section == 0);
                CHECK(order.regular < pairs);
                if (pairs * order.key_blocks < 6 * kMultiprocessors) continue;
                CHECK(2 * (pairs - order.regular) * order.key_blocks >= kMultiprocessors);
                if (pairs > 1) CHECK(order.regular > 0);
            }
}
