// FinishRstd, FinishRowSum, FinishColumnSums and ReduceLoss against their definitions.
#include <algorithm>
#include <cmath>
#include <vector>

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

GradientSum column_sum(Buffers& buffers, DType statistic, Beta beta, bool weighted = false,
                       std::int64_t columns = kColumns) {
    GradientSum sum;
    sum.partials = buffers.random(statistic, kTiles, columns, -1, 1, columns + 4);
    const View grad = beta == Beta::accumulate ? buffers.random(statistic, 1, columns)
                                               : buffers.vector(statistic, columns);  // poisoned: must not be read
    sum.grad = {grad, beta};
    if (weighted) {
        sum.gamma = buffers.random(statistic, 1, columns, 0.5, 1.5);
        const double few[] = {0.0, 0x1p-50, -0x1p-50, -0x1p-39, -1.25};
        for (std::int64_t j = 0; j < 5; ++j) buffers.set(sum.gamma, 0, j, few[j]);
    }
    return sum;
}

/// Three sums that differ in shape, in gamma and in what becomes of the result.
FinishColumnSums column_sums(Buffers& buffers, DType statistic) {
    FinishColumnSums op;
    op.add(column_sum(buffers, statistic, Beta::accumulate, true));
    op.add(column_sum(buffers, statistic, Beta::overwrite, false, 33));
    op.add(column_sum(buffers, statistic, Beta::overwrite));
    return op;
}

/// The sum has an order and a type, the quotient and the addition to what was there are rounded once each: these bits.
void require_column_sum(const Buffers& buffers, const GradientSum& sum, const std::vector<double>& before) {
    const auto rounded = [&](double value) {
        return sum.partials.dtype == DType::f32 ? static_cast<float>(value) : value;
    };
    for (std::int64_t j = 0; j < sum.grad.cols; ++j) {
        double own = rounded(sum_in_order(buffers, sum.partials, j));
        if (sum.gamma) {
            const double gamma = buffers.get(sum.gamma, 0, j);
            own = rounded(own / std::copysign(std::max(std::abs(gamma), 0x1p-40), gamma));
        }
        const double start = sum.grad.beta == Beta::accumulate ? before[static_cast<std::size_t>(j)] : 0;
        REQUIRE(buffers.get(sum.grad, 0, j) == rounded(start + own));
    }
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

TEST_CASE("FinishRowSum and FinishColumnSums add tiles in order") {
    for (const DType statistic : {DType::f64, DType::f32}) {
        Buffers buffers;
        const FinishRowSum rows = row_sum(buffers, statistic);
        cpu::run(rows, buffers.memory());
        for (std::int64_t j = 0; j < kColumns; ++j)
            REQUIRE(buffers.get(rows.sum, 0, j) == sum_in_order(buffers, rows.partials, j));

        for (const Beta beta : {Beta::overwrite, Beta::accumulate}) {
            FinishColumnSums op;
            op.add(column_sum(buffers, statistic, beta));
            const auto before = buffers.values(op.sums[0].grad);
            cpu::run(op, buffers.memory());
            require_column_sum(buffers, op.sums[0], before);
        }
    }
}

TEST_CASE("FinishColumnSums divides by the norm's weight, kept 2^-40 away from 0") {
    for (const DType statistic : {DType::f64, DType::f32})
        for (const Beta beta : {Beta::overwrite, Beta::accumulate}) {
            Buffers buffers;
            FinishColumnSums op;
            op.add(column_sum(buffers, statistic, beta, true));
            const auto before = buffers.values(op.sums[0].grad);
            cpu::run(op, buffers.memory());
            require_column_sum(buffers, op.sums[0], before);
        }
}

TEST_CASE("FinishColumnSums makes every one of its sums, two of them from the same partials") {
    for (const DType statistic : {DType::f64, DType::f32}) {
        Buffers buffers;
        FinishColumnSums op = column_sums(buffers, statistic);
        op.sums[2].partials = op.sums[0].partials;
        std::vector<std::vector<double>> before;
        for (const GradientSum& sum : op.sums) before.push_back(buffers.values(sum.grad));
        cpu::run(op, buffers.memory());
        for (std::size_t i = 0; i < op.sums.size(); ++i) require_column_sum(buffers, op.sums[i], before[i]);
    }
}

TEST_CASE("FinishColumnSums takes three sums, and at least one") {
    Buffers buffers;
    REQUIRE_THROWS_WITH(cpu::run(FinishColumnSums{}, buffers.memory()), "FinishColumnSums: no sum");
    FinishColumnSums op = column_sums(buffers, DType::f32);
    REQUIRE_THROWS_WITH(op.add(op.sums[0]), "FinishColumnSums: more than 3 sums");
    op.sums[1].gamma = buffers.vector(DType::f32, 5);
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()),
                        "FinishColumnSums: operand gamma_2 is (1, 5), expected (1, 33)");
    op.sums[1].gamma = {};
    const GradientSum whole = op.sums[2];
    op.sums[2].grad = {};
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()), "FinishColumnSums: operand grad_3 is missing");
    op.sums[2] = whole;
    op.sums[2].partials = {};
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()), "FinishColumnSums: operand partials_3 is missing");
    op.sums[2] = whole;
    op.sums[2].grad = {buffers.vector(DType::f64, kColumns), Beta::overwrite};
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()), "FinishColumnSums: operand grad_3 is f64, expected f32");
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
        require_same_bits_for_any_thread_count([&](Buffers& b) { return column_sums(b, statistic); });
        for (const Beta beta : {Beta::overwrite, Beta::accumulate}) {
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
