// The work of attention in the fused decode kernel: every visible position exactly once, in splits that depend only on
// what a sequence's newest token sees.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/hopper/decode/plan/attention_work.h"
#include "tests/catch.h"
#include "tests/kernels/decode_grids.h"

using namespace coda;
using namespace coda::hopper::decode;

namespace {

struct Visible {
    std::array<int, kMaxBatch> of{};
    int operator()(int sequence) const { return of[static_cast<std::size_t>(sequence)]; }
};
AttentionTiles<Visible> attention_tiles_of(const std::vector<int>& lengths, int kv_heads, int head_dim) {
    Visible copied;
    std::copy(lengths.begin(), lengths.end(), copied.of.begin());
    return {copied, static_cast<int>(lengths.size()), kv_heads, head_dim};
}

}  // namespace

TEST_CASE("fused decode: every position of every sequence and key/value head exactly once in attention") {
    const std::vector<std::vector<int>> batches = {
        {1},    {0, 5, 0},          {64, 65, 63, 32, 33},         {256, 257, 255},
        {8192}, {4096, 4097, 0, 1}, {1, 2, 3, 4, 5, 6, 7, 100000}};
    for (const int head_dim : {64, 128})
        for (const auto& lengths : batches)
            for (const int kv_heads : {1, 2, 8})
                for (const int grid : {1, 7, 132}) {
                    const auto tiles = attention_tiles_of(lengths, kv_heads, head_dim);
                    std::map<std::tuple<int, int, int>, int> blocks;  // sequence, head, block
                    for (int sm = 0; sm < grid; ++sm) {
                        const OwnTiles own = own_tiles(tiles.number(), 5 % grid, sm, grid);
                        for (int i = 0; i < own.number; ++i) {
                            const AttentionTile tile = tiles.tile(own.tile(i));
                            REQUIRE(tile.blocks >= 1);
                            for (int b = 0; b < tile.blocks; ++b)
                                ++blocks[{tile.sequence, tile.kv_head, tile.first_block + b}];
                        }
                    }
                    std::size_t expected = 0;
                    for (std::size_t s = 0; s < lengths.size(); ++s) {
                        const int positions = block_positions(head_dim);
                        const int number = (lengths[s] + positions - 1) / positions;
                        expected += static_cast<std::size_t>(number * kv_heads);
                        for (int h = 0; h < kv_heads; ++h)
                            for (int b = 0; b < number; ++b) REQUIRE(blocks[{static_cast<int>(s), h, b}] == 1);
                    }
                    REQUIRE(blocks.size() == expected);
                }
}

TEST_CASE("fused decode: a sequence is split only by its own length") {
    for (const int head_dim : {64, 128})
        for (const int length : {1, 256, 512, 513, 1024, 1025, 3000, 50000}) {
            const auto alone = attention_tiles_of({length}, 2, head_dim);
            const auto among = attention_tiles_of({700, length, 0, 9000}, 2, head_dim);
            std::set<std::tuple<int, int, int, int>> first, second;
            for (int u = 0; u < alone.number(); ++u) {
                const AttentionTile tile = alone.tile(u);
                first.insert({tile.split, tile.kv_head, tile.first_block, tile.blocks});
            }
            for (int u = 0; u < among.number(); ++u) {
                const AttentionTile tile = among.tile(u);
                if (tile.sequence == 1) second.insert({tile.split, tile.kv_head, tile.first_block, tile.blocks});
            }
            CHECK(first == second);
            CHECK(splits_of(length, head_dim).number <= kMaxSplits);
        }
}

TEST_CASE("fused decode: one epilogue warp of one SM adds the splits of every column of a head") {
    for (const int grid : test::kDecodeGrids)
        for (const int head_dim : {64, 128}) {
            constexpr int kBatch = 8, kHeads = 32;
            const ReduceTasks tasks{kHeads, head_dim};
            std::map<std::tuple<int, int, int>, int> columns;  // sequence, head, column
            int least = tasks.number(kBatch), most = 0;
            for (int sm = 0; sm < grid; ++sm)
                for (int warp = 0; warp < kEpilogueWarps; ++warp) {
                    const OwnReductions own = own_reductions(sm, warp, grid);
                    int number = 0;
                    for (int index = own.first; index < tasks.number(kBatch); index += own.step, ++number) {
                        const ReduceTask task = tasks.task(index);
                        REQUIRE(task.sequence < kBatch);
                        REQUIRE(task.head < kHeads);
                        for (int c = 0; c < kReducedColumns; ++c)
                            ++columns[{task.sequence, task.head, task.column + c}];
                    }
                    least = std::min(least, number);
                    most = std::max(most, number);
                }
            CHECK(most - least <= 1);
            REQUIRE(columns.size() == static_cast<std::size_t>(kBatch * kHeads * head_dim));
            REQUIRE(std::all_of(columns.begin(), columns.end(), [&](const auto& column) {
                return column.second == 1 && std::get<2>(column.first) < head_dim;
            }));
        }
}

TEST_CASE("fused decode: up to two blocks per warp are not split, and a split has one, as far as splits suffice") {
    for (const int head_dim : {64, 128})
        for (int length = 1; length <= 20000; ++length) {
            const Splits splits = splits_of(length, head_dim);
            int most = 0, least = splits.blocks;
            for (int s = 0; s < splits.number; ++s) {
                const int blocks = splits.first_block(s + 1) - splits.first_block(s);
                most = std::max(most, blocks);
                least = std::min(least, blocks);
            }
            REQUIRE(splits.first_block(0) == 0);
            REQUIRE(splits.first_block(splits.number) == splits.blocks);
            REQUIRE(most - least <= 1);
            REQUIRE((splits.number == 1) == (splits.blocks <= kUnsplitBlocks));
            if (splits.number == 1) continue;
            REQUIRE((most <= kConsumerWarps || splits.number == kMaxSplits));
            REQUIRE((splits.number - 1) * kConsumerWarps < splits.blocks);
        }
    CHECK(splits_of(0, 64).number == 0);
}

TEST_CASE("fused decode: the newest token sees all positions, or as many as the window has") {
    CHECK(visible_positions(0, 4) == 0);
    CHECK(visible_positions(4, 4) == 4);
    CHECK(visible_positions(5, 4) == 4);
    CHECK(visible_positions(5, 100) == 5);
    // So a long sequence has the splits of a short one.
    for (const int head_dim : {64, 128}) {
        const auto windowed = attention_tiles_of({visible_positions(9000, 700), 30}, 2, head_dim);
        const auto whole = attention_tiles_of({700, 30}, 2, head_dim);
        REQUIRE(windowed.number() == whole.number());
        CHECK(windowed.tile(3).blocks == whole.tile(3).blocks);
    }
}
