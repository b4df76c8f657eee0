// The order of forward attention's tiles: every tile once, whatever the number of blocks and their speeds, and no block
// that works much longer than the mean. Needs no GPU.
#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <random>
#include <set>
#include <tuple>

#include "kernels/hopper/attention/forward_tile.h"
#include "kernels/hopper/sm90/device_model.h"
#include "kernels/ops/attention/case.h"
#include "tests/catch.h"

using namespace coda;
using hopper::ForwardOrder;
using hopper::ForwardTile;
using hopper::kMultiprocessors;

namespace {

/// The indices that `blocks` blocks work on, where whoever is next to draw is chosen by `bits`. `counter` is what the
/// launch before has left, and is left to the next one.
std::vector<int> drawn_indices(const ForwardOrder& order, int blocks, unsigned& counter, std::mt19937& bits) {
    std::vector<int> indices, working(static_cast<std::size_t>(blocks));
    std::iota(working.begin(), working.end(), 0);
    std::vector<int> index = working;  // of each block's tile
    while (!working.empty()) {
        const std::size_t chosen = bits() % working.size();
        int& mine = index[static_cast<std::size_t>(working[chosen])];
        indices.push_back(mine);
        mine = ForwardOrder::index(counter, blocks);
        counter = order.drawn(counter);
        if (mine >= order.count()) working.erase(working.begin() + static_cast<long>(chosen));
    }
    return indices;
}

/// What a tile costs, in clocks of an H200: its blocks of keys, and its beginning and end.
struct Costs {
    double block, tile;
};
template <class Tile>
constexpr Costs kCosts = Tile::kHeadDim == 64 ? Costs{2410, 2730} : Costs{2813, 2070};

template <class Tile>
double cost_of(const ForwardOrder& order, const cases::AttentionCaseShape& shape,
               const std::vector<std::int32_t>& starts, int index) {
    const ForwardOrder::Work work = order.at(index);
    const std::int64_t query = order.first_query<Tile>(work);
    const std::int64_t last = std::min(query + Tile::kQueries, shape.seq_len) - 1;
    const std::int64_t sequence = work.pair / shape.kv_heads;
    const std::int64_t row = sequence * shape.seq_len + std::max(query, std::int64_t{0});
    const std::int64_t first = starts.empty() ? 0 : starts[static_cast<std::size_t>(row)];
    const std::int64_t blocks = last / Tile::kKeys - first / Tile::kKeys + 1;
    return kCosts<Tile>.block * static_cast<double>(blocks) + kCosts<Tile>.tile;
}

double slowest_over_mean(const std::vector<double>& times) {
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    return *std::max_element(times.begin(), times.end()) * static_cast<double>(times.size()) / sum;
}

/// A block draws its next tile when it begins one.
double imbalance(const std::vector<double>& costs, int blocks) {
    using Event = std::pair<double, int>;  // when a block begins its tile
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    std::vector<int> tile;
    std::vector<double> end(static_cast<std::size_t>(blocks));
    for (int block = 0; block < blocks; ++block) {
        events.emplace(0, block);
        tile.push_back(block);
    }
    for (unsigned counter = 0; !events.empty(); ++counter) {
        const auto [now, block] = events.top();
        events.pop();
        const auto b = static_cast<std::size_t>(block);
        end[b] = now + costs[static_cast<std::size_t>(tile[b])];
        tile[b] = ForwardOrder::index(counter, blocks);
        if (tile[b] < static_cast<int>(costs.size())) events.emplace(end[b], block);
    }
    return slowest_over_mean(end);
}

/// Tiles dealt to the blocks in rounds, of which every second goes backwards.
double imbalance_of_rounds(const std::vector<double>& costs, int blocks) {
    std::vector<double> times(static_cast<std::size_t>(blocks));
    for (int i = 0; i < static_cast<int>(costs.size()); ++i) {
        const int place = i % blocks;
        times[static_cast<std::size_t>(i / blocks % 2 == 0 ? place : blocks - 1 - place)] +=
            costs[static_cast<std::size_t>(i)];
    }
    return slowest_over_mean(times);
}

template <class Tile>
std::vector<double> costs_of(const cases::AttentionCaseShape& shape, double mean_document) {
    const ForwardOrder order = hopper::forward_order<Tile>(
        shape.seq_len, static_cast<int>(shape.batch * shape.kv_heads), static_cast<int>(shape.heads / shape.kv_heads));
    std::vector<std::int32_t> starts;
    if (mean_document > 0) starts = cases::packed_documents(shape.batch, shape.seq_len, mean_document);
    std::vector<double> costs;
    for (int i = 0; i < order.count(); ++i) costs.push_back(cost_of<Tile>(order, shape, starts, i));
    return costs;
}

std::vector<double> costs_of(const cases::AttentionCaseShape& shape, double mean_document) {
    return shape.head_dim == 64 ? costs_of<ForwardTile<64>>(shape, mean_document)
                                : costs_of<ForwardTile<128>>(shape, mean_document);
}

const cases::AttentionCaseShape kShapes[] = {
    {4, 8192, 32, 8, 64}, {16, 2048, 32, 8, 64}, {2, 8192, 32, 8, 128}, {8, 2048, 32, 8, 128}};

}  // namespace

TEST_CASE("forward attention's order has every tile once, the longest of a section first") {
    for (const ForwardOrder order : {ForwardOrder{1, 1, 1, 1}, ForwardOrder{7, 3, 4, 2}, ForwardOrder{5, 8, 1, 3},
                                     ForwardOrder{43, 16, 4, 8}, ForwardOrder{2, 5, 3, 5}}) {
        std::set<std::tuple<int, int, int>> seen;
        for (int i = 0; i < order.count(); ++i) {
            const ForwardOrder::Work work = order.at(i);
            CHECK((work.query_tile >= 0 && work.query_tile < order.query_tiles));
            CHECK((work.pair >= 0 && work.pair < order.pairs));
            CHECK((work.head_in_group >= 0 && work.head_in_group < order.group));
            CHECK(seen.emplace(work.query_tile, work.pair, work.head_in_group).second);
            if (i == 0) continue;
            const ForwardOrder::Work before = order.at(i - 1);
            const int section = work.pair / order.section, section_before = before.pair / order.section;
            CHECK(section >= section_before);
            if (section == section_before) CHECK(work.query_tile <= before.query_tile);
        }
        CHECK(static_cast<int>(seen.size()) == order.count());
    }
}

TEMPLATE_TEST_CASE("tiles of forward attention cover a sequence from its end", "", ForwardTile<64>, ForwardTile<128>) {
    constexpr int kQueries = TestType::kQueries;
    for (const int seq_len : {1, 17, 64, 65, 128, 129, 192, 193, 1000, 1024, 2048, 8192}) {
        const ForwardOrder order = hopper::forward_order<TestType>(seq_len, 1, 1);
        INFO("T " << seq_len << " in tiles of " << kQueries);
        CHECK((order.before >= 0 && order.before < kQueries && order.before % 64 == 0));
        int end = -order.before;  // of the tiles so far
        for (int i = order.count() - 1; i >= 0; --i) {
            CHECK(order.first_query<TestType>(order.at(i)) == end);
            end += kQueries;
        }
        CHECK((end >= seq_len && end < seq_len + 64));
    }
}

TEST_CASE("blocks that draw take every tile once, and leave the counter as it was") {
    std::mt19937 bits(5);
    unsigned counter = 0;  // one for all launches
    for (int launch = 0; launch < 400; ++launch) {
        const ForwardOrder order{1 + static_cast<int>(bits() % 20), 1 + static_cast<int>(bits() % 9),
                                 1 + static_cast<int>(bits() % 4), 1 + static_cast<int>(bits() % 4)};
        const int limit = std::min(kMultiprocessors, order.count());
        const int blocks = launch % 3 == 0 ? limit : 1 + static_cast<int>(bits() % static_cast<unsigned>(limit));
        INFO(order.count() << " tiles, " << blocks << " blocks");
        std::vector<int> indices = drawn_indices(order, blocks, counter, bits);
        std::sort(indices.begin(), indices.end());
        std::vector<int> all(static_cast<std::size_t>(order.count()));
        std::iota(all.begin(), all.end(), 0);
        REQUIRE(indices == all);
        REQUIRE(counter == 0);
    }
}

TEST_CASE("no block of forward attention works much longer than the mean") {
    for (const cases::AttentionCaseShape& shape : kShapes)
        for (const double mean : {0.0, 500.0, 2000.0}) {
            const std::vector<double> costs = costs_of(shape, mean);
            const double drawn = imbalance(costs, kMultiprocessors),
                         dealt = imbalance_of_rounds(costs, kMultiprocessors);
            INFO("T " << shape.seq_len << " hd " << shape.head_dim << ", documents of " << mean << ": drawn " << drawn
                      << ", dealt in rounds " << dealt);
            CHECK(drawn <= 1.015);
            // What the counter is for.
            CHECK(dealt > (mean > 0 ? 1.03 : 1.02));
        }
}
