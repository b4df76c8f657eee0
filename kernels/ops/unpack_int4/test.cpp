// UnpackInt4 against RoundWeights of the numbers that the units stand for, to the bit.
#include "kernels/cpu/run.h"
#include "kernels/ops/unpack_int4/test_units.h"
#include "tests/catch.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Calls fn(row, column, q, scale) for every number, by the fragments of mma.m16n8k32: lane l has rows l / 4 and
/// l / 4 + 8. Of each of its words the low halves of the bytes are the first row's register, and the high halves the
/// second's. Words 2 h and 2 h + 1 of vector v have columns 64 h + 32 v + 8 (l % 4) to 7 further on.
template <class Fn>
void for_each_number(const Buffers& buffers, const View& units, const Fn& fn) {
    const auto word_of = [&](std::int64_t row, std::int64_t word) {
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(buffers.get(units, row, word)));
    };
    for (std::int64_t i = 0; i < units.rows; ++i)
        for (std::int64_t j = 0; j < units.cols / kUnitWords; ++j)
            for (int vector = 0; vector < 2; ++vector)
                for (int lane = 0; lane < 32; ++lane)
                    for (int word = 0; word < 4; ++word)
                        for (int nibble = 0; nibble < 8; ++nibble) {
                            const std::int64_t unit = j * kUnitWords;
                            const std::uint32_t codes = word_of(i, unit + 128 * vector + 4 * lane + word);
                            const std::uint32_t scales = word_of(i, unit + 256 + lane / 4);
                            const bool far = nibble % 2 != 0;
                            const int q = static_cast<std::int32_t>(codes << (28 - 4 * nibble)) >> 28;
                            const std::uint32_t scale = far ? scales & 0xffff0000u : scales << 16;
                            const int row = lane / 4 + (far ? 8 : 0);
                            const int column =
                                64 * (word / 2) + 32 * vector + 8 * (lane % 4) + 4 * (word % 2) + nibble / 2;
                            fn(kUnitRows * i + row, kUnitColumns * j + column, q, std::bit_cast<float>(scale));
                        }
}

}  // namespace

TEST_CASE("UnpackInt4 has the bits of RoundWeights") {
    constexpr std::int64_t kRows = 48, kColumns = 384;
    for (const DType storage : {DType::bf16, DType::f32, DType::f64})
        for (const bool folded : {false, true}) {
            INFO(name_of(storage) << ", gamma " << folded);
            const DType wide = compute_of(storage);
            Buffers b;
            UnpackInt4 op;
            op.units = random_units(b, kRows, kColumns, 5);
            op.working = b.matrix(storage, kRows, kColumns, kColumns + 8);
            RoundWeights rounded;
            rounded.master = b.matrix(wide, kRows, kColumns);
            rounded.working = b.matrix(storage, kRows, kColumns, kColumns + 8);
            if (folded) {
                op.gamma = b.random(wide, 1, kColumns, -2, 2);
                b.set(op.gamma, 0, 130, 0);  // a weight of 0, whose factor is not
                rounded.gamma = op.gamma;
            }
            for_each_number(b, op.units, [&](std::int64_t row, std::int64_t column, int q, float scale) {
                const double number = wide == DType::f64 ? double(q) * double(scale) : float(q) * scale;
                b.set(rounded.master, row, column, number);
            });
            cpu::run(rounded, b.memory());
            cpu::run(op, b.memory());
            CHECK((b.bits(op.working) == b.bits(rounded.working)));
            CHECK(b.gaps_untouched(op.working));
        }
}

TEST_CASE("UnpackInt4 refuses what is not whole units") {
    Buffers b;
    UnpackInt4 op;
    op.units = random_units(b, 16, 256);
    for (const auto& [rows, columns] : {std::pair{16, 192}, {24, 256}, {8, 256}}) {
        op.working = b.matrix(DType::bf16, rows, columns);
        CHECK_THROWS_WITH(cpu::run(op, b.memory()), Catch::Contains("whole units of 16 rows and 128 columns"));
    }
    op.working = b.matrix(DType::bf16, 32, 256);
    CHECK_THROWS_WITH(cpu::run(op, b.memory()), Catch::Contains("operand units is (1, 528), expected (2, 528)"));
}
