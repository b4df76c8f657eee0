// The FP8 panels of epilogues, on a model of stmatrix.x4, plain and transposed, of ldmatrix.x4.trans, of __byte_perm
// and of a shuffle: every byte lies where TMA and ColumnOrder expect it, or comes from there, and no instruction has a
// bank conflict. Needs no GPU.
#include <array>
#include <random>
#include <set>
#include <vector>

#include "kernels/core/operand.h"
#include "kernels/hopper/epilogue/paired_panel.h"
#include "kernels/hopper/epilogue/quad_bytes.h"
#include "tests/catch.h"

using namespace coda;
using namespace coda::hopper;

namespace {

using Word = std::uint32_t;
using Panel = std::vector<int>;  // bytes; -1 where nothing was written

Word byte_perm(Word low, Word high, unsigned selector) {
    const std::uint64_t both = std::uint64_t{high} << 32 | low;
    Word word = 0;
    for (int i = 0; i < 4; ++i) word |= static_cast<Word>(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return word;
}

/// Lane l gives the address of column l % 8 of matrix l / 8, and holds in register i of that matrix the elements
/// (row l / 4, columns 2 (l % 4) and + 1). Column c goes to its address, element of row 0 first.
void store_matrix_x4_transposed(Panel& panel, const std::array<int, 32>& address,
                                const std::array<std::array<Word, 4>, 32>& registers) {
    for (int matrix = 0; matrix < 4; ++matrix) {
        std::set<int> banks;  // of 16 bytes
        for (int column = 0; column < 8; ++column) {
            const int to = address[static_cast<std::size_t>(8 * matrix + column)];
            REQUIRE(to % 16 == 0);
            banks.insert(to / 16 % 8);
            for (int row = 0; row < 8; ++row) {
                const auto lane = static_cast<std::size_t>(4 * row + column / 2);
                const Word element = registers[lane][static_cast<std::size_t>(matrix)] >> column % 2 * 16;
                for (int byte = 0; byte < 2; ++byte) {
                    int& place = panel.at(static_cast<std::size_t>(to + 2 * row + byte));
                    CHECK(place == -1);
                    place = static_cast<int>(element >> 8 * byte & 0xff);
                }
            }
        }
        CHECK(banks.size() == 8);
    }
}

/// The inverse: element r of the column at each address goes to lane 4 r + column / 2.
std::array<std::array<Word, 4>, 32> load_matrix_x4_transposed(const Panel& panel, const std::array<int, 32>& address) {
    std::array<std::array<Word, 4>, 32> registers{};
    for (std::size_t matrix = 0; matrix < 4; ++matrix) {
        std::set<int> banks;  // of 16 bytes
        for (std::size_t column = 0; column < 8; ++column) {
            const int from = address[8 * matrix + column];
            banks.insert(from / 16 % 8);
            for (std::size_t row = 0; row < 8; ++row) {
                const auto place = static_cast<std::size_t>(from) + 2 * row;
                const auto element = static_cast<Word>(panel.at(place) | panel.at(place + 1) << 8);
                registers[4 * row + column / 2][matrix] |= element << column % 2 * 16;
            }
        }
        CHECK(banks.size() == 8);
    }
    return registers;
}

/// Lane l gives the address of row l % 8 of matrix l / 8; row r gets the words of lanes 4 r to 4 r + 3.
void store_matrix_x4(Panel& panel, const std::array<int, 32>& address,
                     const std::array<std::array<Word, 4>, 32>& registers) {
    for (std::size_t matrix = 0; matrix < 4; ++matrix) {
        std::set<int> banks;  // of 16 bytes
        for (std::size_t row = 0; row < 8; ++row) {
            const int to = address[8 * matrix + row];
            banks.insert(to / 16 % 8);
            for (int byte = 0; byte < 16; ++byte) {
                int& place = panel.at(static_cast<std::size_t>(to + byte));
                CHECK(place == -1);
                place = static_cast<int>(
                    registers[4 * row + static_cast<std::size_t>(byte / 4)][matrix] >> byte % 4 * 8 & 0xff);
            }
        }
        CHECK(banks.size() == 8);
    }
}

/// A step in which quads transpose their bytes, of words first and first + 1 of all lanes.
template <int distance>
void exchange(std::array<std::array<Word, 4>, 32>& words, std::size_t first) {
    std::array<Word, 32> given{};
    for (std::size_t lane = 0; lane < 32; ++lane)
        given[lane] = byte_perm(words[lane][first], words[lane][first + 1],
                                QuadByteStep<distance>(static_cast<int>(lane % 4)).given());
    for (std::size_t lane = 0; lane < 32; ++lane) {
        const QuadByteStep<distance> step(static_cast<int>(lane % 4));
        const Word received = given[lane ^ distance];
        words[lane][first] = byte_perm(words[lane][first], received, step.first());
        words[lane][first + 1] = byte_perm(words[lane][first + 1], received, step.second());
    }
}

struct SubTile {
    int columns;
    std::vector<std::uint8_t> bytes;  // (64, columns)

    explicit SubTile(int width) : columns(width), bytes(static_cast<std::size_t>(64 * width)) {
        std::mt19937 random(5);
        for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    }
    Word at(int row, int column) const { return bytes[static_cast<std::size_t>(row * columns + column)]; }
    /// As TMA reads a panel of 64-byte rows, one per column.
    void check(const Panel& panel) const {
        int wrong = 0;
        for (int row = 0; row < 64; ++row)
            for (int column = 0; column < columns; ++column) {
                const int place = swizzled_offset(column, static_cast<int>(paired_place(row)), kPairedRowBytes);
                wrong += panel.at(static_cast<std::size_t>(place)) != static_cast<int>(at(row, column));
            }
        CHECK(wrong == 0);
    }
    /// As TMA reads a panel of 32-byte rows, by rows.
    void check_rows(const Panel& panel) const {
        int wrong = 0;
        for (int row = 0; row < 64; ++row)
            for (int column = 0; column < columns; ++column)
                wrong += panel.at(static_cast<std::size_t>(swizzled_offset(row, column, 32))) !=
                         static_cast<int>(at(row, column));
        CHECK(wrong == 0);
    }
};

/// As TransposedStoreF8 packs them: of blocks first to first + 3, rows r and r + 8 of a lane's two columns.
std::array<Word, 4> narrow_words(const SubTile& tile, int warp, int lane, int first) {
    const int upper = Fragment::row(warp, lane, 0), lower = Fragment::row(warp, lane, 1);
    std::array<Word, 4> words{};
    for (int block = 0; block < 4; ++block) {
        const int column = Fragment::column(lane, first + block);
        words[static_cast<std::size_t>(block)] = tile.at(upper, column) | tile.at(lower, column) << 8 |
                                                 tile.at(upper, column + 1) << 16 | tile.at(lower, column + 1) << 24;
    }
    return words;
}

/// Each lane stores the lower half of a word: its two columns of a block, of one row. Lanes meet in a word or in
/// different banks.
void store_halves(Panel& panel, int warp, int block, int half, const std::array<std::array<Word, 4>, 32>& registers) {
    std::set<int> words, banks;
    for (int lane = 0; lane < 32; ++lane) {
        const int to = swizzled_offset(Fragment::row(warp, lane, half), Fragment::column(lane, block), 32);
        REQUIRE(to % 2 == 0);
        words.insert(to / 4);
        banks.insert(to / 4 % 32);
        const Word codes = byte_perm(registers[static_cast<std::size_t>(lane)][static_cast<std::size_t>(block)], 0,
                                     NarrowPairs::of_row(half));
        for (int byte = 0; byte < 2; ++byte) {
            int& place = panel.at(static_cast<std::size_t>(to + byte));
            CHECK(place == -1);
            place = static_cast<int>(codes >> 8 * byte & 0xff);
        }
    }
    CHECK(banks.size() == words.size());
}

}  // namespace

TEST_CASE("a wide transposed FP8 panel holds the bytes of the rows, its tokens in pairs") {
    const SubTile tile(64);
    Panel panel(64 * kPairedRowBytes, -1);
    for (int warp = 0; warp < 4; ++warp)
        for (int two_blocks = 0; two_blocks < 2; ++two_blocks) {
            std::array<int, 32> address{};
            std::array<std::array<Word, 4>, 32> registers{};
            for (int lane = 0; lane < 32; ++lane) {
                // A word per block and half, as tiles_f8.cuh packs them: columns 16 block + 4 quad to + 3 of a row.
                Word words[2][2];
                for (int block = 0; block < 2; ++block)
                    for (int half = 0; half < 2; ++half) {
                        words[block][half] = 0;
                        for (int i = 0; i < 4; ++i)
                            words[block][half] |= tile.at(Fragment::row(warp, lane, half),
                                                          32 * two_blocks + 16 * block + 4 * (lane % 4) + i)
                                                  << 8 * i;
                    }
                const auto l = static_cast<std::size_t>(lane);
                for (int i = 0; i < 4; ++i)
                    registers[l][static_cast<std::size_t>(i)] =
                        byte_perm(words[i / 2][0], words[i / 2][1], WidePairs::selector(lane % 4, i % 2));
                address[l] = paired_offset<WidePairs>(warp, lane, 32 * two_blocks);
                CHECK(address[l] == paired_offset<WidePairs>(warp, lane, 0) + 32 * two_blocks * kPairedRowBytes);
            }
            store_matrix_x4_transposed(panel, address, registers);

            // As WideTransposedLoadF8 takes them: rows r and r + 8 of two columns per word.
            const auto loaded = load_matrix_x4_transposed(panel, address);
            int wrong = 0;
            for (int lane = 0; lane < 32; ++lane)
                for (int block = 0; block < 2; ++block)
                    for (int pair = 0; pair < 2; ++pair) {
                        const int matrix = WidePairs::last_two(lane % 4, 0) != (pair == 1) ? 1 : 0;
                        const Word word =
                            loaded[static_cast<std::size_t>(lane)][static_cast<std::size_t>(2 * block + matrix)];
                        for (int i = 0; i < 4; ++i) {
                            const int row = Fragment::row(warp, lane, i % 2);
                            const int column = 32 * two_blocks + 16 * block + 4 * (lane % 4) + 2 * pair + i / 2;
                            wrong += (word >> 8 * i & 0xff) != tile.at(row, column);
                        }
                    }
            CHECK(wrong == 0);
        }
    tile.check(panel);
}

TEST_CASE("narrow FP8 panels of 64 columns hold the bytes transposed, four blocks at a time") {
    const SubTile tile(64);
    Panel panel(64 * kPairedRowBytes, -1);
    for (int warp = 0; warp < 4; ++warp)
        for (int four_blocks = 0; four_blocks < 2; ++four_blocks) {
            std::array<int, 32> address{};
            std::array<std::array<Word, 4>, 32> registers{};
            for (int lane = 0; lane < 32; ++lane) {
                const auto l = static_cast<std::size_t>(lane);
                registers[l] = narrow_words(tile, warp, lane, 4 * four_blocks);
                address[l] = paired_offset<NarrowPairs>(warp, lane, 0) + four_blocks * (32 * kPairedRowBytes);
            }
            store_matrix_x4_transposed(panel, address, registers);
        }
    tile.check(panel);
}

TEST_CASE("narrow FP8 panels hold the bytes transposed, the tokens in pairs, and by rows in natural order") {
    const SubTile tile(32);
    Panel panel(32 * kPairedRowBytes, -1), rows(64 * 32, -1);
    for (int warp = 0; warp < 4; ++warp) {
        std::array<int, 32> address{};
        std::array<std::array<Word, 4>, 32> registers{};
        for (int lane = 0; lane < 32; ++lane) {
            const auto l = static_cast<std::size_t>(lane);
            registers[l] = narrow_words(tile, warp, lane, 0);
            address[l] = paired_offset<NarrowPairs>(warp, lane, 0);
        }
        store_matrix_x4_transposed(panel, address, registers);
        for (int block = 0; block < 4; ++block)
            for (int half = 0; half < 2; ++half) store_halves(rows, warp, block, half, registers);
    }
    tile.check(panel);
    tile.check_rows(rows);
}

TEST_CASE("FP8 panels of a value per pair hold the bytes transposed, and by rows in natural order") {
    const SubTile tile(32);
    Panel transposed(32 * kPairedRowBytes, -1), rows(64 * 32, -1);
    for (int warp = 0; warp < 4; ++warp) {
        std::array<int, 32> address{}, row_address{};
        std::array<std::array<Word, 4>, 32> paired{}, words{};
        for (int lane = 0; lane < 32; ++lane) {
            const auto l = static_cast<std::size_t>(lane);
            // As tiles_f8.cuh packs them: of blocks 2 i and 2 i + 1, column 4 block + lane % 4, rows r and r + 8.
            const int upper = Fragment::row(warp, lane, 0), lower = Fragment::row(warp, lane, 1);
            for (int i = 0; i < 4; ++i) {
                const int column = 8 * i + lane % 4;
                paired[l][static_cast<std::size_t>(i)] = tile.at(upper, column) | tile.at(lower, column) << 8 |
                                                         tile.at(upper, column + 4) << 16 |
                                                         tile.at(lower, column + 4) << 24;
            }
            for (std::size_t i = 0; i < 4; ++i)
                words[l][i] = byte_perm(paired[l][i / 2 * 2], paired[l][i / 2 * 2 + 1], i % 2 == 0 ? 0x6420 : 0x7531);
            address[l] = paired_offset<HalfPairs>(warp, lane, 0);
            row_address[l] = swizzled_offset(16 * warp + lane % 16, lane / 16 * 16, 32);
        }
        store_matrix_x4_transposed(transposed, address, paired);
        for (const std::size_t first : {0, 2}) exchange<2>(words, first);
        for (const std::size_t first : {0, 2}) exchange<1>(words, first);
        store_matrix_x4(rows, row_address, words);
    }
    tile.check(transposed);
    tile.check_rows(rows);
}
