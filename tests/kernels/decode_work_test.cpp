// The index arithmetic of the fused decode kernel: every piece of work exactly once, in an order that producer and
// consumers agree on.
#include <algorithm>
#include <set>
#include <vector>

#include "kernels/hopper/decode/plan/decode_plan.h"
#include "kernels/hopper/decode/plan/fragment.h"
#include "tests/catch.h"
#include "tests/kernels/decode_grids.h"
#include "tests/kernels/fixture.h"

using namespace coda;
using namespace coda::hopper::decode;

TEST_CASE("fused decode: slices cover every column once, and a warp keeps its slices from tile to tile") {
    for (int columns = kStepColumns; columns <= 30000; columns += kStepColumns)
        for (const bool int4 : {false, true}) {
            const Slices slices = slices_of(columns, int4);
            CAPTURE(columns, slices.number, int4);
            const int together = stage_slices(slices, int4);
            REQUIRE(slices.number % together == 0);
            REQUIRE(kConsumerWarps % together == 0);
            REQUIRE(most_stage_slices(int4) % together == 0);
            if (int4) {
                REQUIRE(slices.most % kUnitBlocks == 0);
                REQUIRE(together * slices.most / kUnitBlocks * kUnitBytes <= stage_bytes(true));
            } else {
                REQUIRE(together * slices.most * kBlockBytes <= stage_bytes(false));
            }
            REQUIRE((slices.most <= kHalfSliceBlocks || slices.number >= kConsumerWarps));
            REQUIRE((kConsumerWarps % slices.number == 0 || slices.number % kConsumerWarps == 0));
            REQUIRE(slices.first_block(0) == 0);
            REQUIRE(slices.most <= kSliceBlocks);
            const int blocks = slices.first_block(slices.number);
            REQUIRE(blocks * kBlockColumns >= columns);
            REQUIRE((blocks - 1) * kBlockColumns < columns);
            int covered = 0;
            for (int j = 0; j < slices.number; ++j) {
                REQUIRE(slices.first_column(j) == slices.first_block(j) * kBlockColumns);
                REQUIRE(slices.first_block(j) + slices.blocks_of(j) == slices.first_block(j + 1));
                // One copy has one size: only what is behind the matrix may be missing from it.
                REQUIRE((slices.blocks_of(j) == slices.most || slices.first_block(j + 1) == blocks));
                REQUIRE(slices.columns_of(j, columns) >= 0);
                covered += slices.columns_of(j, columns);
            }
            REQUIRE(covered == columns);
            REQUIRE(slices.partials() * slices.rounds() == slices.number);
        }
    for (const int columns : {2048, 3072, 4096, 8192, 14336}) {  // released models: nothing is copied for nothing
        const Slices slices = slices_of(columns, false);
        CHECK(slices.number * slices.most == slices.blocks);
    }
    // Tiles are not grouped if and only if their slices stay in the warps. A tile with fewer slices than warps always
    // keeps them.
    for (const int columns : {16, 2048, 4096, 8192, 14336})
        for (int batch = 1; batch <= kMaxBatch; ++batch) {
            const Slices slices = slices_of(columns, false);
            CHECK((tiles_together(slices, batch) == 1) == (resident_slices(slices, batch) == slices.rounds()));
            CHECK((slices.rounds() > 1 || tiles_together(slices, batch) == 1));
        }
    // A warp's stages of successive tiles name the same slices, in the same order.
    for (const int columns : {16, 512, 768, 2048, 4096, 5632, 8192, 14336, 28672}) {
        const Slices slices = slices_of(columns, false);
        for (int warp = 0; warp < kConsumerWarps; ++warp) {
            std::vector<int> found;
            for (OwnKTiles own(slices, warp); own.tile() < 5 * kConsumerWarps; own.advance())
                found.push_back(own.slice());
            const auto rounds = static_cast<std::size_t>(slices.rounds());
            for (std::size_t i = 0; i + rounds < found.size(); ++i) REQUIRE(found[i] == found[i + rounds]);
            for (std::size_t i = 1; i < rounds; ++i) REQUIRE(found[i] > found[i - 1]);
        }
    }
}

namespace {

/// The stages of a warp's loops where it keeps its slices, and where it fetches each for several tiles.
std::vector<KTile> kept_k_tiles(const Slices& slices, int tiles, int warp) {
    std::vector<KTile> stages;
    for (OwnKTiles own(slices, warp); own.tile() < tiles; own.advance()) stages.push_back({own.tile(), own.slice()});
    return stages;
}
std::vector<KTile> fetched_k_tiles(const Slices& slices, int tiles, int warp) {
    std::vector<KTile> stages;
    for (int first = 0; first < tiles; first += kTilesTogether)
        for (int slice = warp; slice < slices.number; slice += kConsumerWarps)
            for (int t = first; t < std::min(first + kTilesTogether, tiles); ++t) stages.push_back({t, slice});
    return stages;
}

}  // namespace

TEST_CASE("fused decode: every tile and slice exactly once, by one warp, in the producer's order") {
    for (const int grid : test::kDecodeGrids)
        for (const int tiles : {1, 3, 48, 131, 132, 133, 192, 1024, 8016})
            for (const int columns : {16, 528, 2048, 5632, 8192}) {
                if (tiles > 1024 && columns != 2048) continue;
                const Slices slices = slices_of(columns, false);
                const int rotation = (tiles * 37 + columns) % grid;
                std::vector<int> seen(static_cast<std::size_t>(tiles * slices.number));
                int least = tiles, most = 0;
                for (int sm = 0; sm < grid; ++sm) {
                    const OwnTiles own = own_tiles(tiles, rotation, sm, grid);
                    least = std::min(least, own.number);
                    most = std::max(most, own.number);
                    for (const int together : {1, kTilesTogether}) {
                        if (together > 1 && slices.rounds() == 1) continue;  // these are kept
                        std::vector<std::pair<int, int>> produced;
                        each_k_tile(slices, own.number, together, 1, [&](KTile stage) {
                            produced.emplace_back(own.tile(stage.tile), stage.slice);
                            return true;
                        });
                        // The first k-tile of every stage, whose readers are neighbours.
                        for (const bool int4 : {false, true}) {
                            const int readers = stage_slices(slices, int4);
                            std::size_t at = 0;
                            each_k_tile(slices, own.number, together, readers, [&](KTile stage) {
                                REQUIRE(at < produced.size());
                                REQUIRE(produced[at] == std::pair(own.tile(stage.tile), stage.slice));
                                at += static_cast<std::size_t>(readers);
                                return true;
                            });
                            REQUIRE(at == produced.size());
                        }
                        std::vector<std::pair<int, int>> consumed(produced.size(), {-1, -1});
                        for (int warp = 0; warp < kConsumerWarps; ++warp) {
                            auto m = static_cast<std::size_t>(warp);
                            for (const KTile stage : together == 1 ? kept_k_tiles(slices, own.number, warp)
                                                                   : fetched_k_tiles(slices, own.number, warp)) {
                                REQUIRE(m < consumed.size());
                                consumed[m] = {own.tile(stage.tile), stage.slice};
                                m += kConsumerWarps;
                            }
                        }
                        REQUIRE(produced == consumed);
                        for (const auto& [tile, slice] : produced)
                            ++seen[static_cast<std::size_t>(tile * slices.number + slice)];
                    }
                }
                CAPTURE(grid, tiles, columns);
                REQUIRE(most - least <= 1);
                const int times = slices.rounds() == 1 ? 1 : 2;  // in each order once
                REQUIRE(std::all_of(seen.begin(), seen.end(), [&](int count) { return count == times; }));
            }
}

TEST_CASE("fused decode: epochs of a launch are all different, and follow those of the launch before") {
    constexpr int kStages = 82, kTokens = 5;
    std::set<std::uint32_t> seen;
    std::uint32_t base = 0xffffff00u;  // around the end of 32 bits
    for (int launch = 0; launch < 2; ++launch, base += kStages * kTokens)
        for (int token = 0; token < kTokens; ++token)
            for (int op = 0; op < kStages; ++op) {
                const std::uint32_t epoch = epoch_of(base, kStages, token, op);
                CHECK(seen.insert(epoch).second);
                // What a reader expects of the op before.
                if (op > 0) CHECK(epoch - 1 == epoch_of(base, kStages, token, op - 1));
                if (token > 0 && op == 0) CHECK(epoch - 1 == epoch_of(base, kStages, token - 1, kStages - 1));
            }
    CHECK(seen.size() == 2 * kStages * kTokens);
}

namespace {

/// The k that the hardware gives to element i (0 to 3) of a lane's four of a step: pairs 2 (l % 4), and 8 further on.
int hardware_k(int lane, int i) { return lane % 4 * 2 + i % 2 + (i >= 2 ? 8 : 0); }
int weight(int row, int k) { return (row * 31 + k * 17) % 13 - 6; }
int input(int column, int k) { return (column * 7 + k * 5) % 11 - 5; }

/// The stage that has a slice, as the copies bring it: of a matrix of `columns` columns in which row 16 follows row 15,
/// as another tile of weights would. What no copy writes is 99.
std::vector<std::int16_t> chunk_of(const Slices& slices, int columns, int slice) {
    std::vector<std::int16_t> stage(stage_bytes(false) / 2, 99);
    const bool whole = in_whole_blocks(columns);
    const int together = stage_slices(slices, false), first = slice / together * together;
    const int blocks =
        whole ? together * slices.most : slices.first_block(first + together) - slices.first_block(first);
    for (int block = 0; block < blocks; ++block)
        for (int row = 0; row < kTileRows; ++row)
            for (int j = 0; j < kBlockColumns; ++j) {
                const int k = (slices.first_block(first) + block) * kBlockColumns + j;
                int byte = block * kBlockBytes + row * kBlockRowBytes + 2 * j;
                byte ^= (byte >> 7 & 7) << 4;  // the hardware's swizzle of 128 bytes
                stage[static_cast<std::size_t>(byte / 2)] = static_cast<std::int16_t>(k < columns ? weight(row, k) : 0);
            }
    return stage;
}

}  // namespace

TEST_CASE("fused decode: stages and lanes make the GEMM of 16 rows and up to 8 columns") {
    // The copies, and the hardware's MMA on what the lanes load, in whole numbers, against plain sums.
    for (const int columns : {16, 32, 48, 64, 80, 336, 352, 512, 528, 704, 1408, 2048, 4624}) {
        const Slices slices = slices_of(columns, false);
        std::vector<int> result(16 * 8);
        for (int slice = 0; slice < slices.number; ++slice) {
            const std::vector<std::int16_t> stage = chunk_of(slices, columns, slice);
            const char* start = reinterpret_cast<const char*>(stage.data()) +
                                slice % stage_slices(slices, false) * slices.most * kBlockBytes;
            for (int block = 0; block < slices.blocks_of(slice); ++block)
                for (int mma = 0; mma < 4; ++mma) {
                    // a[row][k], b[column][k] as the hardware would see them.
                    int a[16][16], b[8][16];
                    for (int lane = 0; lane < 32; ++lane) {
                        const LaneRows rows = rows_of_stage(start, lane);
                        const char* from = (mma < 2 ? rows.first : rows.second) + block * rows.block + mma % 2 * 8;
                        for (int i = 0; i < 4; ++i) {
                            const int k = hardware_k(lane, i);
                            a[lane_row(lane)][k] = reinterpret_cast<const std::int16_t*>(from)[i];
                            a[lane_row(lane) + 8][k] = reinterpret_cast<const std::int16_t*>(from + rows.far)[i];
                            const int at =
                                slices.first_column(slice) + block * kBlockColumns + lane_column(lane) + 4 * mma + i;
                            b[lane_row(lane)][k] = at < columns ? input(lane_row(lane), at) : 0;
                        }
                    }
                    for (int lane = 0; lane < 32; ++lane)
                        for (int i = 0; i < 4; ++i) {
                            const int row = result_row(lane, i), column = result_column(lane, i);
                            for (int k = 0; k < 16; ++k)
                                result[static_cast<std::size_t>(row * 8 + column)] += a[row][k] * b[column][k];
                        }
                }
        }
        CAPTURE(columns);
        for (int row = 0; row < 16; ++row)
            for (int column = 0; column < 8; ++column) {
                int sum = 0;
                for (int k = 0; k < columns; ++k) sum += weight(row, k) * input(column, k);
                REQUIRE(result[static_cast<std::size_t>(row * 8 + column)] == sum);
            }
    }
}

TEST_CASE("fused decode: a Lamport buffer has a slice of every sequence where the lanes load it") {
    for (const int octets : {1, 2})
        for (const int columns : {16, 528, 2048, 4624, 14336}) {
            const Slices slices = slices_of(columns, false);
            std::set<std::int64_t> found;
            for (int slice = 0; slice < slices.number; ++slice)
                for (int octet = 0; octet < octets; ++octet)
                    for (int lane = 0; lane < 32; ++lane)
                        for (int tile = 0; tile < kLamportVectors; ++tile)
                            for (int i = 0; i < kVectorBytes / 2; ++i) {
                                const int in_slice = tile / 2 * kBlockColumns + lane_column(lane) + tile % 2 * 8 + i;
                                if (in_slice >= slices.columns_of(slice, columns)) continue;
                                const std::int64_t at = lamport_offset(slices, octets, 8 * octet + lane_row(lane),
                                                                       slices.first_column(slice) + in_slice);
                                REQUIRE(at == (slice * octets + octet) * kLamportSliceBytes +
                                                  (32 * tile + lane) * kVectorBytes + 2 * i);
                                found.insert(at);
                            }
            CHECK(std::ssize(found) == std::int64_t{8} * octets * columns);
        }
}

TEST_CASE("fused decode: a layer empties the copy of the Lamport buffers that is written two layers later") {
    for (const int layers : {1, 2, 3, 16}) {
        CHECK(layers_of(kLayerOps * layers + 2) == layers);
        std::vector<int> copies;
        for (int token = 0; token < 4; ++token)
            for (int layer = 0; layer < layers; ++layer) {
                copies.push_back(lamport_buffer(layers, token, kLayerOps * layer));
                CHECK(lamport_buffer(layers, token, kLayerOps * layer + 4) == copies.back());
            }
        for (std::size_t i = 0; i + 2 < copies.size(); ++i) {
            CHECK(emptied_buffer(copies[i]) == copies[i + 2]);
            CHECK(copies[i] != copies[i + 1]);
            CHECK(copies[i] != copies[i + 2]);
        }
    }
}

TEST_CASE("fused decode: the lanes that load at a time fall on different banks") {
    // A 16-byte load goes in four parts of 8 lanes, which are 2 rows of 4 lanes.
    const auto different = [](int lane, const auto& byte_of) {
        std::set<int> banks;
        for (int l = lane; l < lane + 8; ++l) {
            CHECK(byte_of(l) % 16 == 0);
            banks.insert(static_cast<int>(byte_of(l) / 4 % 32));
        }
        return banks.size() == 8;
    };
    alignas(128) static const char stage[stage_bytes(false)] = {};
    for (int lane = 0; lane < 32; lane += 8) {
        CHECK(different(lane, [&](int l) { return rows_of_stage(stage, l).first - stage; }));
        CHECK(different(lane, [&](int l) { return rows_of_stage(stage, l).second - stage; }));
        for (const int pitch : {kInputPitch, input_pitch(4), input_pitch_of(64), input_pitch_of(128)})
            CHECK(different(lane, [&](int l) { return lane_row(l) * pitch + 2 * lane_column(l); }));
    }
}

TEST_CASE("fused decode: planned lengths grow by one a step up to the context, and idle sequences have none") {
    CHECK(planned_length(true, 5, 0, 100) == 5);
    CHECK(planned_length(true, 5, 7, 100) == 12);
    CHECK(planned_length(true, 98, 7, 100) == 100);
    CHECK(planned_length(false, 98, 7, 100) == 0);
}
