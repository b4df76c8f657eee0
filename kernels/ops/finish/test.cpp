// FinishRstd, FinishRowSum, FinishColumnSum and ReduceLoss against their definitions.
#include <cmath>

#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr std::int64_t kTiles = 7, kColumns = 600;  // more than one block of columns, the last one ragged

/// The sum over tiles in order, in the statistic's type: the ops promise exactly these bits.
double sum_in_order(const Buffers& buffers, const View& partials, std::int64_t column) {
    double sum = 0;
    for (std::int64_t tile = 0; tile < partials.rows; ++tile) {
        sum += buffers.get(partials, tile, column);
        if (partials.dtype == DType::f32) sum = static_cast<float>(sum);
    }
    return sum;
}

FinishRowSum row_sum(Buffers& buffers, DType statistic) {
    FinishRowSum op;
    op.partials = buffers.random(statistic, kTiles, kColumns, -1, 1, kColumns + 4);
    op.sum = buffers.vector(statistic, kColumns);
    return op;
}

FinishColumnSum column_sum(Buffers& buffers, DType statistic, Beta beta, bool weighted = false) {
    FinishColumnSum op;
    op.partials = buffers.random(statistic, kTiles, kColumns, -1, 1, kColumns + 4);
    const View grad = beta == Beta::accumulate ? buffers.random(statistic, 1, kColumns)
                                               : buffers.vector(statistic, kColumns);  // poisoned: must not be read
    op.grad = {grad, beta};
    if (weighted) {
        op.gamma = buffers.random(statistic, 1, kColumns, 0.5, 1.5);
        const double few[] = {0.0, 0x1p-50, -0x1p-50, -0x1p-39, -1.25};
        for (std::int64_t j = 0; j < 5; ++j) buffers.set(op.gamma, 0, j, few[j]);
    }
    return op;
}

FinishRstd finish_rstd(Buffers& buffers, DType statistic) {
    FinishRstd op;
    op.square = buffers.random(statistic, kTiles, kColumns, 0, 9, kColumns + 4);
    op.rstd = buffers.vector(statistic, kColumns);
    op.width = 33;
    op.eps = 0.25;
    return op;
}

ReduceLoss reduce_loss(Buffers& buffers, DType statistic, Beta beta) {
    ReduceLoss op;
    op.loss = buffers.random(statistic, 1, 1000, 0, 5);
    op.alpha = buffers.scalar(statistic, 0.125);
    op.total = {beta == Beta::accumulate ? buffers.scalar(statistic, 3) : buffers.matrix(statistic, 1, 1), beta};
    return op;
}

}  // namespace

TEST_CASE("FinishRowSum and FinishColumnSum add tiles in order") {
    for (const DType statistic : {DType::f64, DType::f32}) {
        Buffers buffers;
        const FinishRowSum rows = row_sum(buffers, statistic);
        cpu::run(rows, buffers.memory());
        for (std::int64_t j = 0; j < kColumns; ++j)
            REQUIRE(buffers.get(rows.sum, 0, j) == sum_in_order(buffers, rows.partials, j));

        for (const Beta beta : {Beta::overwrite, Beta::accumulate}) {
            const FinishColumnSum op = column_sum(buffers, statistic, beta);
            const auto before = buffers.values(op.grad);
            cpu::run(op, buffers.memory());
            for (std::int64_t j = 0; j < kColumns; ++j) {
                const double start = beta == Beta::accumulate ? before[static_cast<std::size_t>(j)] : 0;
                double expected = start + sum_in_order(buffers, op.partials, j);
                if (statistic == DType::f32) expected = static_cast<float>(expected);
                REQUIRE(buffers.get(op.grad, 0, j) == expected);
            }
        }
    }
}

// The sum has the same order and type; the quotient and the addition to what was there are rounded once each.
TEST_CASE("FinishColumnSum divides by the norm's weight, kept 2^-40 away from 0") {
    for (const DType statistic : {DType::f64, DType::f32})
        for (const Beta beta : {Beta::overwrite, Beta::accumulate}) {
            Buffers buffers;
            const FinishColumnSum op = column_sum(buffers, statistic, beta, true);
            const auto before = buffers.values(op.grad);
            cpu::run(op, buffers.memory());
            const auto rounded = [&](double value) {
                return statistic == DType::f32 ? static_cast<float>(value) : value;
            };
            for (std::int64_t j = 0; j < kColumns; ++j) {
                const double gamma = buffers.get(op.gamma, 0, j);
                const double factor = std::copysign(std::max(std::abs(gamma), 0x1p-40), gamma);
                const double own = rounded(rounded(sum_in_order(buffers, op.partials, j)) / factor);
                const double start = beta == Beta::accumulate ? before[static_cast<std::size_t>(j)] : 0;
                REQUIRE(buffers.get(op.grad, 0, j) == rounded(start + own));
            }
        }
}

// Seven additions, a division, a square root: 10 eps.
TEST_CASE("FinishRstd is 1 / sqrt(mean + eps)") {
    for (const DType statistic : {DType::f64, DType::f32}) {
        Buffers buffers;
        const FinishRstd op = finish_rstd(buffers, statistic);
        cpu::run(op, buffers.memory());
        for (std::int64_t m = 0; m < kColumns; ++m) {
            double square = 0;
            for (std::int64_t tile = 0; tile < kTiles; ++tile) square += buffers.get(op.square, tile, m);
            const double expected = 1 / std::sqrt(square / 33 + 0.25);
            REQUIRE(std::abs(buffers.get(op.rstd, 0, m) / expected - 1) < 10 * epsilon(statistic));
        }
    }
}

// The sum is kept in double, so only the result is rounded, and once more when it is added to a total.
TEST_CASE("ReduceLoss scales the sum of losses") {
    for (const DType statistic : {DType::f64, DType::f32})
        for (const Beta beta : {Beta::overwrite, Beta::accumulate}) {
            Buffers buffers;
            const ReduceLoss op = reduce_loss(buffers, statistic, beta);
            double expected = beta == Beta::accumulate ? 3 : 0;
            for (const double loss : buffers.values(op.loss)) expected += loss * 0.125;
            cpu::run(op, buffers.memory());
            const double tolerance = statistic == DType::f64 ? 1e-13 : epsilon(statistic);
            REQUIRE(std::abs(buffers.get(op.total, 0, 0) / expected - 1) < tolerance);
        }
}

TEST_CASE("reductions give the same bits for any number of threads") {
    for (const DType statistic : {DType::f64, DType::f32}) {
        require_same_bits_for_any_thread_count([&](Buffers& b) { return row_sum(b, statistic); });
        require_same_bits_for_any_thread_count([&](Buffers& b) { return finish_rstd(b, statistic); });
        for (const Beta beta : {Beta::overwrite, Beta::accumulate}) {
            require_same_bits_for_any_thread_count([&](Buffers& b) { return column_sum(b, statistic, beta); });
            require_same_bits_for_any_thread_count([&](Buffers& b) { return reduce_loss(b, statistic, beta); });
        }
    }
}

TEST_CASE("a statistic of the wrong type or shape is an error") {
    Buffers buffers;
    FinishRowSum op = row_sum(buffers, DType::f32);
    op.sum = buffers.vector(DType::f64, kColumns);
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()), "FinishRowSum: operand sum is f64, expected f32");
    op.sum = buffers.vector(DType::f32, 5);
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()), "FinishRowSum: operand sum is (1, 5), expected (1, 600)");
    op.partials = buffers.matrix(DType::bf16, kTiles, kColumns);
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()), "FinishRowSum: operand partials is bf16, expected f64 or f32");
}
