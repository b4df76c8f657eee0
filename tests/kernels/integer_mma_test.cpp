// 4-bit integers times fixed-point inputs by integer MMAs, lane by lane on the host: the order of codes and pieces, and
// how far fixed point is from the numbers.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/hopper/decode/plan/decode_plan.h"
#include "kernels/math/fixed_point.h"
#include "tests/catch.h"

using namespace coda;
using namespace coda::hopper::decode;

namespace {

using Words = std::array<std::uint32_t, 4>;

int byte_of(std::uint32_t word, int index) { return static_cast<std::int8_t>(word >> (8 * index)); }

Words load(const std::vector<char>& memory, int offset) {
    Words words;
    std::memcpy(words.data(), memory.data() + offset, sizeof words);
    return words;
}

/// mma.m16n8k32 as PTX defines it: lane l has A's rows l / 4 (a0, a2) and l / 4 + 8 (a1, a3) at k = 4 (l % 4) to 3
/// further on, and (a2, a3) 16 further on; B's column l / 4 at the same k; D as m16n8k16.
void multiply(int (&d)[32][4], const std::uint32_t (&a)[32][4], const std::uint32_t (&b)[32][2]) {
    int rows[16][32], columns[32][8];
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i)
            for (int byte = 0; byte < 4; ++byte) {
                const int k = 4 * (lane % 4) + byte;
                rows[lane / 4 + 8 * (i % 2)][k + 16 * (i / 2)] = byte_of(a[lane][i], byte);
                if (i < 2) columns[k + 16 * i][lane / 4] = byte_of(b[lane][i], byte);
            }
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i)
            for (int k = 0; k < 32; ++k)
                d[lane][i] += rows[lane / 4 + 8 * (i / 2)][k] * columns[k][2 * (lane % 4) + i % 2];
}

/// A slice of eight sequences and a row of units, with their products.
struct Slice {
    static constexpr int kUnits = kSliceBlocks / kUnitBlocks;
    std::vector<char> input = std::vector<char>(kOctet * kInputPitch);
    std::vector<std::uint32_t> units = std::vector<std::uint32_t>(kUnits * kInt4UnitWords);
    std::array<std::array<float, kSliceColumns>, kOctet> x;
    std::array<std::array<int, kSliceColumns>, kInt4Rows> q;

    char* of(int sequence) { return input.data() + sequence * kInputPitch; }

    explicit Slice(unsigned seed) {
        std::mt19937 random(seed);
        for (int row = 0; row < kInt4Rows; ++row)
            for (int column = 0; column < kSliceColumns; ++column) {
                q[row][column] = static_cast<int>(random() % 16) - 8;
                const Int4Place at = int4_code(row, column % kInt4Group);
                units[column / kInt4Group * kInt4UnitWords + at.word] |=
                    (static_cast<std::uint32_t>(q[row][column]) & 15u) << at.bit;
            }
        std::normal_distribution<float> normal;
        for (int b = 0; b < kOctet; ++b)
            for (float& number : x[b]) number = normal(random) * std::ldexp(1.0f, b);
    }

    /// As FixedPointInput does: a lane has a part of a unit.
    void convert() {
        for (int b = 0; b < kOctet; ++b)
            for (int unit = 0; unit < kUnits; ++unit) {
                const float* numbers = x[b].data() + unit * kInt4Group;
                float largest = 0;
                for (int column = 0; column < kInt4Group; ++column)
                    largest = std::max(largest, std::abs(numbers[column]));
                const FixedPoint fixed = fixed_point_of(largest);
                std::memcpy(of(b) + kScalesOffset + 4 * unit, &fixed.from, sizeof fixed.from);
                for (int part = 0; part < kUnitParts; ++part)
                    for (int word = 0; word < 4; ++word) {
                        float four[4];
                        std::memcpy(four, numbers + 64 * (word / 2) + 8 * part + 4 * (word % 2), sizeof four);
                        const Pieces pieces = pieces_of(four, fixed.to);
                        char* const to = of(b) + unit * kUnitInputBytes + 4 * word;
                        std::memcpy(to + piece_offset(part, false), &pieces.high, 4);
                        std::memcpy(to + piece_offset(part, true), &pieces.low, 4);
                    }
            }
    }

    /// The sums of a unit: of two MMAs' lanes, 256 high + low, which are 16 times the products.
    void multiply_unit(int unit, double (&sums)[kOctet][kInt4Rows]) {
        for (int m = 0; m < kOctet / kPieceSequences; ++m) {
            int d[32][4] = {};
            for (int half = 0; half < 2; ++half) {
                std::uint32_t a[2][32][4], b[2][32][2];
                for (int lane = 0; lane < 32; ++lane) {
                    const std::uint32_t* codes = units.data() + unit * kInt4UnitWords + half * 128 + 4 * lane;
                    const Words pieces = load(input, (piece_sequence(lane) + m * kPieceSequences) * kInputPitch +
                                                         unit * kUnitInputBytes +
                                                         piece_offset(lane_part(lane, half), has_low_piece(lane)));
                    for (int product = 0; product < 2; ++product)
                        for (int i = 0; i < 2; ++i) {
                            const std::uint32_t word = codes[2 * product + i];
                            a[product][lane][2 * i] = word << 4 & 0xf0f0f0f0u;
                            a[product][lane][2 * i + 1] = word & 0xf0f0f0f0u;
                            b[product][lane][i] = pieces[static_cast<std::size_t>(2 * product + i)];
                        }
                }
                for (int product = 0; product < 2; ++product) multiply(d, a[product], b[product]);
            }
            for (int lane = 0; lane < 32; ++lane)
                for (int far = 0; far < 2; ++far)
                    sums[integer_result_sequence(lane, m)][result_row(lane, 2 * far)] =
                        256 * d[lane][2 * far] + d[lane][2 * far + 1];
        }
    }
};

}  // namespace

TEST_CASE("integer MMAs of codes and pieces are the products of numbers and fixed point") {
    Slice slice(3);
    slice.convert();
    for (int unit = 0; unit < Slice::kUnits; ++unit) {
        double sums[kOctet][kInt4Rows];
        slice.multiply_unit(unit, sums);
        for (int b = 0; b < kOctet; ++b) {
            float from = 0;
            std::memcpy(&from, slice.of(b) + kScalesOffset + 4 * unit, sizeof from);
            float largest = 0;
            for (int column = 0; column < kInt4Group; ++column)
                largest = std::max(largest, std::abs(slice.x[b][unit * kInt4Group + column]));
            for (int row = 0; row < kInt4Rows; ++row) {
                double fixed = 0, exact = 0, off = 0;
                for (int column = unit * kInt4Group; column < (unit + 1) * kInt4Group; ++column) {
                    const int q = slice.q[row][column];
                    fixed += 16 * q * std::nearbyint(double(slice.x[b][column]) / from);
                    exact += double(q) * double(slice.x[b][column]);
                    off += std::abs(q) * double(largest) / 32640;
                }
                CAPTURE(unit, b, row);
                REQUIRE(sums[b][row] == fixed);
                REQUIRE(std::abs(sums[b][row]) < 0x1p29);
                REQUIRE(std::abs(sums[b][row] * from / 16 - exact) <= off);
            }
        }
    }
}

TEST_CASE("fixed point fits two pieces and uses them") {
    std::mt19937 random(5);
    for (int i = 0; i < 200000; ++i) {
        // Exponents from the least normal number's to the largest; of one in four the mantissa is near where it
        // carries.
        const std::uint32_t exponent = 1 + random() % 253;
        const std::uint32_t mantissa = i % 4 == 0 ? 8322816u - 64 + random() % 128 : random() & 0x7fffffu;
        const float largest = std::bit_cast<float>(exponent << 23 | mantissa);
        const FixedPoint fixed = fixed_point_of(largest);
        CAPTURE(largest);
        REQUIRE(double(fixed.to) * double(fixed.from) == 1);
        const double scaled = std::nearbyint(double(largest) * double(fixed.to));
        REQUIRE(scaled <= kLargestFixed);
        if (exponent > 15) REQUIRE(scaled >= 16320);
        const float part = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x3fffffffu);
        const float numbers[4] = {largest, -largest, part < 1 ? largest * part : 0.0f, 0.0f};
        const Pieces pieces = pieces_of(numbers, fixed.to);
        for (int j = 0; j < 4; ++j)
            REQUIRE(256 * byte_of(pieces.high, j) + byte_of(pieces.low, j) ==
                    std::nearbyint(double(numbers[j]) * double(fixed.to)));
    }
    const float zeros[4] = {0, -0.0f, 0, 0};
    CHECK(pieces_of(zeros, fixed_point_of(0).to).high == 0);
    CHECK(pieces_of(zeros, fixed_point_of(0).to).low == 0);
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                            std::bit_cast<float>(0x7fffffffu), std::numeric_limits<float>::max()})
        CHECK(std::isnan(fixed_point_of(bad).from));
}
