// Embed, EmbedBackward and Zero against their definitions in fp64.
#include <cmath>

#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr std::int64_t kVocab = 11, kWidth = 150;
const std::vector<int> kTokens{3, 0, 10, 3, 3, 7, 0, 3};
const auto kRows = static_cast<std::int64_t>(kTokens.size());

Embed embed(Buffers& buffers, DType table, DType storage) {
    Embed op;
    op.tokens = buffers.indices(kTokens);
    op.table = buffers.random(table, kVocab, kWidth, -1, 1, kWidth + 2);
    op.x = buffers.matrix(storage, kRows, kWidth, kWidth + 1);
    op.rstd = buffers.vector(compute_of(storage), kRows);
    op.eps = 1e-2;
    return op;
}

EmbedBackward embed_backward(Buffers& buffers, DType storage) {
    EmbedBackward op;
    op.tokens = buffers.indices(kTokens);
    op.dx = buffers.random(storage, kRows, kWidth, -1, 1, kWidth + 2);
    op.grad = buffers.random(compute_of(storage), kVocab, kWidth, -1, 1, kWidth + 3);
    return op;
}

}  // namespace

// x is a copy, or rounded once. A centred x has one more rounding, and the error of a mean of 150 values below 2. rstd
// is a sum of 150 squares of stored values: its relative error is below 150 eps.
TEST_CASE("Embed copies or rounds rows, or their sums with rows of positions, and takes their rstd") {
    const bool has_positions = GENERATE(false, true), centred = GENERATE(false, true);
    const std::vector<int> positions{0, 1, 2, 3, 0, 1, 2, 3};
    for (const auto& [table, storage] : {std::pair{DType::f64, DType::f64}, std::pair{DType::f32, DType::f32},
                                         std::pair{DType::bf16, DType::bf16}, std::pair{DType::f32, DType::bf16}}) {
        Buffers buffers;
        Embed op = embed(buffers, table, storage);
        op.centred = centred;
        if (has_positions) {
            op.positions = buffers.indices(positions);
            op.position_table = buffers.random(storage, 4, kWidth, -1, 1, kWidth + 2);
        }
        cpu::run(op, buffers.memory());
        for (std::int64_t m = 0; m < kRows; ++m) {
            const auto at = static_cast<std::size_t>(m);
            double square = 0, mean = 0;
            const auto sum = [&](std::int64_t j) {
                double x = buffers.get(op.table, kTokens[at], j);
                if (storage == DType::bf16) x = static_cast<float>(Bf16(static_cast<float>(x)));
                return has_positions ? x + buffers.get(op.position_table, positions[at], j) : x;
            };
            for (std::int64_t j = 0; centred && j < kWidth; ++j) mean += sum(j) / kWidth;
            for (std::int64_t j = 0; j < kWidth; ++j) {
                const auto stored = [&](double value) -> double {
                    if (storage == DType::f64) return value;
                    const auto single = static_cast<float>(value);
                    return storage == DType::bf16 ? static_cast<float>(Bf16(single)) : single;
                };
                const double x = buffers.get(op.x, m, j);
                if (centred)
                    REQUIRE(std::abs(x - (sum(j) - mean)) <=
                            2 * epsilon(storage) * std::abs(x) + 300 * epsilon(compute_of(storage)));
                else
                    REQUIRE(x == stored(sum(j)));
                square += x * x;
            }
            const double rstd = 1 / std::sqrt(square / kWidth + 1e-2);
            REQUIRE(std::abs(buffers.get(op.rstd, 0, m) / rstd - 1) < 150 * epsilon(compute_of(storage)));
        }
        REQUIRE(buffers.gaps_untouched(op.x));
    }
}

// Both sides make the same additions in the same order and type, so the result is equal, not close.
TEST_CASE("EmbedBackward adds rows of one token in order") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        Buffers buffers;
        const EmbedBackward op = embed_backward(buffers, storage);
        std::vector<double> expected = buffers.values(op.grad);
        for (std::int64_t m = 0; m < kRows; ++m)
            for (std::int64_t j = 0; j < kWidth; ++j) {
                double& sum = expected[static_cast<std::size_t>(kTokens[static_cast<std::size_t>(m)] * kWidth + j)];
                sum += buffers.get(op.dx, m, j);
                if (storage != DType::f64) sum = static_cast<float>(sum);
            }
        cpu::run(op, buffers.memory());
        REQUIRE((buffers.values(op.grad) == expected));
        REQUIRE(buffers.gaps_untouched(op.grad));
    }
}

TEST_CASE("embedding ops give the same bits for any number of threads") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        require_same_bits_for_any_thread_count([&](Buffers& buffers) { return embed(buffers, storage, storage); });
        require_same_bits_for_any_thread_count([&](Buffers& buffers) { return embed_backward(buffers, storage); });
    }
}

TEST_CASE("a token outside the table is an error") {
    Buffers buffers;
    const Embed op = embed(buffers, DType::f32, DType::f32);
    buffers.set(op.tokens, 0, 5, kVocab);
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()), "Embed: tokens[5] is 11, outside [0, 11)");
}
