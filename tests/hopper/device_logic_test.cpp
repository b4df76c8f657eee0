// The arithmetic that the Hopper kernels share with the host: descriptors, swizzle, fragments, tile order and
// shared-memory budgets, for every tile configuration in the table. Needs no GPU.
#include <set>
#include <tuple>
#include <vector>

#include "kernels/hopper/epilogue/slot.h"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/sm90/descriptor.h"
#include "kernels/hopper/sm90/swizzle.h"
#include "kernels/hopper/sm90/tile_order.h"
#include "tests/catch.h"

using namespace coda::hopper;

namespace {

std::uint64_t bits(std::uint64_t word, int first, int last) {
    return word >> first & ((std::uint64_t{1} << (last - first + 1)) - 1);
}

struct NamedTile {
    const char* name;
    TileConfig config;
    int slot_bytes, scratch_bytes;
};

const NamedTile kTiles[] = {
    {"Wide", tiles::Wide::config, 8192, 0},
    {"Tall", tiles::Tall::config, 8192, 0},
    {"Medium", tiles::Medium::config, 8192, 0},
    {"Square", tiles::Square::config, 8192, 0},
    {"ThreeBlocks", tiles::ThreeBlocks::config, 8192, 0},
    {"Rope", tiles::Rope::config, 4096, 0},
    {"Swiglu", tiles::Swiglu::config, 6144, 0},
    {"SwigluShort", tiles::SwigluShort::config, 6144, 0},
    {"Gelu", tiles::Gelu::config, 8192, 0},
    {"InPlace", tiles::InPlace::config, 8192, 0},
    {"InPlaceMedium", tiles::InPlaceMedium::config, 8192, 0},
    {"RmsBackward", tiles::RmsBackward::config, 8192, 4096},
    {"RmsBackwardMedium", tiles::RmsBackwardMedium::config, 8192, 4096},
    {"RmsBackwardMediumCooperative", tiles::RmsBackwardMediumCooperative::config, 8192, 8192},
    {"RmsBackwardWide", tiles::RmsBackwardWide::config, 8192, 4096},
    {"ResidualRms", tiles::ResidualRms::config, 8192, 0},
    {"CrossEntropy", tiles::CrossEntropy::config, 8192, 0},
    {"CrossEntropyTall", tiles::CrossEntropyTall::config, 8192, 0},
    {"SwigluBackward", tiles::SwigluBackward::config, 8192, 0},
    {"SwigluBackwardAndY", tiles::SwigluBackwardAndY::config, 12288, 0},
    {"GradientWide", tiles::GradientWide::config, 8192, 0},
    {"GradientNarrow", tiles::GradientNarrow::config, 8192, 0},
    {"GradientTall", tiles::GradientTall::config, 8192, 0},
    {"F8 InPlace", tiles::F8<tiles::InPlace>::config, 8192, 0},
    {"F8 InPlaceMedium", tiles::F8<tiles::InPlaceMedium>::config, 8192, 0},
    {"F8 ResidualRms", tiles::F8<tiles::ResidualRms>::config, 8192, 0},
    {"F8 PromotedNarrow", tiles::F8<tiles::PromotedNarrow, 256>::config, 8192, 0},
    {"F8 PromotedSmall", tiles::F8<tiles::PromotedSmall, 256>::config, 8192, 0},
    {"F8 PromotedShared", tiles::F8<tiles::PromotedShared, 256>::config, 8192, 0},
    {"SwigluF8", tiles::F8<tiles::SwigluF8>::config, 8192, 0},
    {"SwigluF8Square", tiles::F8<tiles::SwigluF8Square>::config, 8192, 0},
    {"SwigluBackwardF8", tiles::F8<tiles::SwigluBackwardF8>::config, 8192, 0},
    {"SwigluBackwardF8Shared", tiles::F8<tiles::SwigluBackwardF8Shared>::config, 8192, 0},
};

}  // namespace

TEST_CASE("matrix descriptors have the fields of the PTX manual") {
    const std::uint64_t k_major = matrix_descriptor(0x12400, Major::k);
    CHECK(bits(k_major, 0, 13) == 0x12400 >> 4);
    CHECK(bits(k_major, 32, 45) == 64);  // 8 rows of 128 bytes, in units of 16
    CHECK(bits(k_major, 49, 51) == 0);   // the swizzle starts at the address
    CHECK(bits(k_major, 62, 63) == 1);   // 128-byte swizzle
    const std::uint64_t mn_major = matrix_descriptor(0x400, Major::mn);
    CHECK(bits(mn_major, 16, 29) == 512);  // next panel of 64: 64 rows of k
    CHECK(bits(mn_major, 32, 45) == 64);
    // 16 of K further: two chunks within the row, or 16 rows.
    CHECK(16 * descriptor_k16_step(Major::k) == 32);
    CHECK(16 * descriptor_k16_step(Major::mn) == 16 * 128);
    // Operands of several panels: a K-major one continues in the next panel after every 64 of K.
    CHECK(16 * k_major_step(3, 0x4000) == 3 * 32);
    CHECK(16 * k_major_step(6, 0x4000) == 0x4000 + 2 * 32);
    CHECK(16 * mn_major_step(6) == 6 * 16 * 128);
    CHECK(bits(mn_major_descriptor(0x400, 0x4000), 16, 29) == 0x4000 >> 4);
    // The largest shared address still fits its field.
    CHECK(bits(matrix_descriptor(kMaxSharedBytes - 1024, Major::k), 14, 15) == 0);
}

TEST_CASE("the swizzle permutes every panel, as address bits say") {
    for (const int row_bytes : {32, 64, 128}) {
        std::set<int> seen;
        for (int row = 0; row < kPanelRows; ++row)
            for (int byte = 0; byte < row_bytes; byte += 16) {
                const int linear = row * row_bytes + byte;
                // Address bits 4.. XOR bits 7.., as many bits as a row has chunks.
                const int expected = linear ^ ((linear >> 7 & (row_bytes / 16 - 1)) << 4);
                CHECK(swizzled_offset(row, byte, row_bytes) == expected);
                seen.insert(expected);
            }
        CHECK(seen.size() == static_cast<std::size_t>(kPanelRows * row_bytes / 16));
        // Eight rows further the swizzle is the same, so the kernels' second half is a constant offset.
        for (int row = 0; row + 8 < kPanelRows; ++row)
            CHECK(swizzle_mask(row, row_bytes) == swizzle_mask(row + 8, row_bytes));
    }
}

TEST_CASE("fragments cover a 64-row block once, without bank conflicts") {
    std::set<std::pair<int, int>> seen;
    for (int warp = 0; warp < 4; ++warp)
        for (int half = 0; half < 2; ++half)
            for (int block = 0; block < 8; ++block) {
                for (const int row_bytes : {64, 128}) {
                    std::set<int> banks;
                    for (int lane = 0; lane < 32; ++lane) {
                        const int byte = 2 * Fragment::column(lane, block % (row_bytes / 16));
                        banks.insert(swizzled_offset(Fragment::row(warp, lane, half), byte, row_bytes) / 4 % 32);
                    }
                    CHECK(banks.size() == 32);
                }
                for (int lane = 0; lane < 32; ++lane)
                    seen.insert({Fragment::row(warp, lane, half), Fragment::column(lane, block)});
            }
    CHECK(seen.size() == 64 * 32);
}

TEST_CASE("the order visits every tile once, whatever the group") {
    for (const int tiles_m : {1, 2, 7, 8, 9, 128})
        for (const int tiles_n : {1, 3, 16, 501})
            for (const int group : {1, 4, 8, 16, 66}) {
                for (const bool along_n : {false, true}) {
                    const TileOrder order{tiles_m, tiles_n, group, along_n};
                    std::vector<int> visits(static_cast<std::size_t>(order.count()));
                    for (int i = 0; i < order.count(); ++i) {
                        const TileIndex index = order.at(i);
                        REQUIRE((index.m >= 0 && index.m < tiles_m && index.n >= 0 && index.n < tiles_n));
                        REQUIRE((index.whole() && order.whole(i) && index.split == 0));
                        ++visits[static_cast<std::size_t>(index.m * tiles_n + index.n)];
                    }
                    for (const int count : visits) REQUIRE(count == 1);
                }
            }
}

TEST_CASE("tiles at the end of an order come in two halves, at the place of the whole") {
    for (const auto& [tiles_m, tiles_n] : {std::pair{5, 3}, std::pair{1, 1}, std::pair{16, 33}})
        for (const int halved : {1, 2, 14, 15}) {
            if (halved > tiles_m * tiles_n) continue;
            const TileOrder plain{tiles_m, tiles_n, 4};
            TileOrder order = plain;
            order.halved = halved;
            REQUIRE(order.count() == plain.count() + halved);
            const int whole = plain.count() - halved;
            for (int i = 0; i < order.count(); ++i) {
                const TileIndex got = order.at(i), expected = plain.at(i < whole ? i : whole + (i - whole) / 2);
                REQUIRE((got.m == expected.m && got.n == expected.n));
                REQUIRE(got.whole() == (i < whole));
                REQUIRE(order.whole(i) == (i < whole));
                REQUIRE(got.first_row(64) == (i >= whole && (i - whole) % 2 == 1 ? 64 : 0));
            }
        }
}

TEST_CASE("an order with parts of K visits every tile of every part") {
    const TileOrder order{3, 5, 2, false, 4};
    REQUIRE(order.count() == 60);
    std::set<std::tuple<int, int, int>> seen;
    for (int i = 0; i < order.count(); ++i) {
        const TileIndex index = order.split_at(i);
        REQUIRE((index.split == i / 15 && index.whole()));
        seen.insert({index.m, index.n, index.split});
    }
    CHECK(seen.size() == 60);
}

TEST_CASE("the CTAs of a cluster load every operand tile once, and hear from all that read it") {
    for (const auto& [m, n] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{1, 2}, std::pair{2, 2}}) {
        const TileConfig tile{.m = 128, .n = 128, .cluster_m = m, .cluster_n = n};
        std::set<std::pair<int, int>> places;
        for (int rank = 0; rank < tile.cluster(); ++rank) {
            places.insert({tile.rank_row(rank), tile.rank_column(rank)});
            int sharers = 0;
            for (int other = 0; other < tile.cluster(); ++other) {
                const bool common =
                    tile.rank_row(rank) == tile.rank_row(other) || tile.rank_column(rank) == tile.rank_column(other);
                CHECK(tile.share(rank, other) == common);
                sharers += common;
            }
            CHECK(sharers == tile.sharers());
        }
        CHECK(places.size() == static_cast<std::size_t>(tile.cluster()));
        CHECK(places.count({tile.cluster_rows() - 128, tile.cluster_columns() - 128}) == 1);
    }
}

TEST_CASE("every tile configuration fits an SM") {
    for (const auto& [name, tile, slot_bytes, scratch_bytes] : kTiles) {
        INFO(name);
        CHECK(shared_bytes(tile, slot_bytes, scratch_bytes) <= kMaxSharedBytes);
        CHECK(tile.stages >= 3);
        CHECK(tile.stage_bytes() % kSwizzleAtomBytes == 0);
        CHECK(tile.n / tile.cluster_m * kPanelRowBytes % kSwizzleAtomBytes == 0);  // each CTA's share of B
        CHECK(tile.m / tile.cluster_n * kPanelRowBytes % kSwizzleAtomBytes == 0);  // and of A
        CHECK(tile.warpgroup_rows() % kPanelRows == 0);
        CHECK(tile.warpgroup_rows() * tile.n / 128 <= 192);  // accumulators per thread
    }
}

TEST_CASE("slots pack their panels on swizzle periods") {
    using Gated = Slot<32, Panel{64}, Panel{32, 1, 2}>;
    CHECK(Gated::kBytes == 6144);
    CHECK(Gated::offset(1) == 4096);
    CHECK(Gated::panel(1).column(64) == 32);
    using Doubled = Slot<32, Panel{128, 2, 1}, Panel{64}>;
    CHECK(Doubled::kBytes == 12288);
    CHECK(Doubled::panel(0).column(96) == 192);
    using Shared = Slot<32, Panel{64}, Panel{64}, Over{TransposedPanel{32}, 1}, Over{Panel{32}, 1}>;
    CHECK(Shared::kBytes == 8192);
    CHECK(Shared::offset(1) == 4096);
    CHECK(Shared::offset(2) == 4096);
    CHECK(Shared::offset(3) == 6144);
    CHECK(Shared::transposed(2));
    CHECK_FALSE(Shared::transposed(3));
    using Wide = Slot<64, TransposedPanel{64}, TransposedPanel{32, 1, 2}, Panel{32, 1, 2}>;
    CHECK(Wide::kBytes == 8192);
    CHECK(Wide::offset(1) == 4096);
    CHECK(Wide::offset(2) == 6144);
    CHECK(Wide::panel(1).column(64) == 32);
}
