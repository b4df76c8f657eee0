// LayerNorm and LayerNormBackward against their formulas in plain fp64 loops, and against LayerNorm with a mean.
#include "tests/kernels/gemm_programs.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr std::int64_t kTile = LayerNormBackward::kTileRows;

LayerNorm layer_norm(Buffers& buffers, DType storage, std::int64_t m, std::int64_t d) {
    const DType compute = compute_of(storage);
    return {.x = buffers.random(storage, m, d, -1, 1, d + kGap),
            .rstd = buffers.random(compute, 1, m, 0.5, 2),
            .gamma = buffers.random(compute, 1, d, -2, 2),
            .beta = buffers.random(compute, 1, d),
            .n = buffers.matrix(storage, m, d, d + kGap)};
}

LayerNormBackward layer_norm_backward(Buffers& buffers, DType storage, std::int64_t m, std::int64_t d,
                                      bool has_sums = true) {
    const DType compute = compute_of(storage);
    const std::int64_t rows = tiles(m, kTile);
    return {.dn = buffers.random(storage, m, d, -1, 1, d + kGap),
            .x = buffers.random(storage, m, d, -1, 1, d + 2 * kGap),
            .rstd = buffers.random(compute, 1, m, 0.5, 2),
            .gamma = buffers.random(compute, 1, d, -2, 2),
            .dx = buffers.matrix(storage, m, d, d + kGap),
            .dgamma = buffers.matrix(compute, rows, d, d + kGap),
            .dbeta = has_sums ? buffers.matrix(compute, rows, d, d + kGap) : View{},
            .dx_sum = has_sums ? buffers.matrix(compute, rows, d, d + kGap) : View{},
            .tile = kTile};
}

const std::vector<std::pair<int, int>> kShapes{{1, 1}, {63, 24}, {64, 7}, {200, 136}};

template <class Fn>
void for_each_case(const Fn& fn) {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        for (const auto& [m, d] : kShapes) {
            INFO(name_of(storage) << ", M " << m << ", d " << d);
            Buffers buffers;
            fn(buffers, storage, m, d);
        }
}

/// LayerNorm with a mean, of one row in double.
Values layer_norm_of(const Values& row, const Values& gamma, const Values& beta, double eps) {
    const auto d = static_cast<double>(row.size());
    double mean = 0, variance = 0;
    for (const double value : row) mean += value / d;
    for (const double value : row) variance += (value - mean) * (value - mean) / d;
    Values n(row.size());
    for (std::size_t j = 0; j < n.size(); ++j) n[j] = (row[j] - mean) / std::sqrt(variance + eps) * gamma[j] + beta[j];
    return n;
}

/// A matrix whose rows have mean 0 in double, and its rstd.
struct Centred {
    static constexpr double kEps = 0.1;
    View x, rstd;

    Centred(Buffers& buffers, std::int64_t m, std::int64_t d)
        : x(buffers.random(DType::f64, m, d)), rstd(buffers.vector(DType::f64, m)) {
        for (std::int64_t row = 0; row < m; ++row) {
            double mean = 0, square = 0;
            for (std::int64_t j = 0; j < d; ++j) mean += buffers.get(x, row, j) / static_cast<double>(d);
            for (std::int64_t j = 0; j < d; ++j) {
                const double value = buffers.get(x, row, j) - mean;
                buffers.set(x, row, j, value);
                square += value * value;
            }
            buffers.set(rstd, 0, row, 1 / std::sqrt(square / static_cast<double>(d) + kEps));
        }
    }
};

Values row_of(const Buffers& buffers, const View& view, std::int64_t row) {
    return buffers.values(view.row_slice(row, 1));
}

}  // namespace

TEST_CASE("LayerNorm is rstd x times gamma plus beta") {
    for_each_case([](Buffers& b, DType storage, std::int64_t m, std::int64_t d) {
        const LayerNorm op = layer_norm(b, storage, m, d);
        cpu::run(op, b.memory());
        // rstd x gamma and beta, which may cancel, are at most 4 and 1.
        const DType compute = compute_of(storage);
        check_close("n", b, op.n, compute, 5 * kArithmetic * epsilon(compute), [&](std::int64_t i, std::int64_t j) {
            return b.get(op.rstd, 0, i) * b.get(op.x, i, j) * b.get(op.gamma, 0, j) + b.get(op.beta, 0, j);
        });
    });
}

TEST_CASE("LayerNormBackward is the gradient of rstd x gamma + beta, with its sums over tiles of rows") {
    for_each_case([](Buffers& b, DType storage, std::int64_t m, std::int64_t d) {
        for (const bool has_sums : {true, false}) {
            const LayerNormBackward op = layer_norm_backward(b, storage, m, d, has_sums);
            cpu::run(op, b.memory());
            const DType compute = compute_of(storage);
            const double eps = epsilon(compute);
            const auto x_hat = [&](std::int64_t i, std::int64_t j) { return b.get(op.rstd, 0, i) * b.get(op.x, i, j); };
            const auto t = [&](std::int64_t i, std::int64_t j) { return b.get(op.dn, i, j) * b.get(op.gamma, 0, j); };
            Values means(static_cast<std::size_t>(m)), magnitudes(means.size());
            for (std::int64_t i = 0; i < m; ++i)
                for (std::int64_t j = 0; j < d; ++j) {
                    const double term = t(i, j) * x_hat(i, j) / static_cast<double>(d);
                    means[static_cast<std::size_t>(i)] += term;
                    magnitudes[static_cast<std::size_t>(i)] += std::fabs(term);
                }
            // dx before it is rounded: a sum, and the arithmetic of two terms that may cancel.
            const auto exact = [&](std::int64_t i, std::int64_t j) {
                const auto row = static_cast<std::size_t>(i);
                const double factor = b.get(op.rstd, 0, i), of_x = x_hat(i, j) * means[row];
                const double error = kArithmetic * (std::fabs(t(i, j)) + std::fabs(of_x)) +
                                     kSummation * std::fabs(x_hat(i, j)) * magnitudes[row];
                return Expectation{factor * (t(i, j) - of_x), factor * eps * error};
            };
            const double rounding = storage == compute ? 0 : epsilon(storage) / 2;
            double largest = 0;
            check_all("dx", b, op.dx, [&](std::int64_t i, std::int64_t j) {
                const Expectation before = exact(i, j);
                largest = std::max(largest, before.tolerance);
                return Expectation{before.expected,
                                   before.tolerance * (1 + rounding) + rounding * std::fabs(before.expected)};
            });
            check_partials("dgamma", b, op.dgamma, kTile, m, 0, [&](std::int64_t column, std::int64_t row) {
                return b.get(op.dn, row, column) * x_hat(row, column);
            });
            if (!has_sums) continue;
            check_partials("dbeta", b, op.dbeta, kTile, m, 0,
                           [&](std::int64_t column, std::int64_t row) { return b.get(op.dn, row, column); });
            check_partials("dx_sum", b, op.dx_sum, kTile, m, largest,
                           [&](std::int64_t column, std::int64_t row) { return exact(row, column).expected; });
        }
    });
}

TEST_CASE("LayerNorm of rows of mean 0 is LayerNorm, and its gradient is right up to a multiple of (1, ..., 1)") {
    constexpr std::int64_t kRows = 5, kWidth = 24;
    Buffers b;
    const Centred stream(b, kRows, kWidth);
    const LayerNorm forward{.x = stream.x,
                            .rstd = stream.rstd,
                            .gamma = b.random(DType::f64, 1, kWidth, -2, 2),
                            .beta = b.random(DType::f64, 1, kWidth),
                            .n = b.matrix(DType::f64, kRows, kWidth)};
    cpu::run(forward, b.memory());
    const LayerNormBackward back{.dn = b.random(DType::f64, kRows, kWidth),
                                 .x = stream.x,
                                 .rstd = stream.rstd,
                                 .gamma = forward.gamma,
                                 .dx = b.matrix(DType::f64, kRows, kWidth),
                                 .dgamma = b.matrix(DType::f64, 1, kWidth),
                                 .dbeta = {},
                                 .dx_sum = {},
                                 .tile = kTile};
    cpu::run(back, b.memory());
    const Values gamma = b.values(forward.gamma), beta = b.values(forward.beta);
    for (std::int64_t row = 0; row < kRows; ++row) {
        const Values x = row_of(b, stream.x, row), dn = row_of(b, back.dn, row), n = row_of(b, forward.n, row);
        const Values expected = layer_norm_of(x, gamma, beta, Centred::kEps);
        double mean = 0;
        for (std::size_t j = 0; j < x.size(); ++j) {
            CHECK(std::fabs(n[j] - expected[j]) < 1e-13);
            mean += b.get(back.dx, row, static_cast<std::int64_t>(j)) / kWidth;
        }
        const auto loss = [&](std::size_t j, double step) {
            Values moved = x;
            moved[j] += step;
            const Values result = layer_norm_of(moved, gamma, beta, Centred::kEps);
            double sum = 0;
            for (std::size_t i = 0; i < result.size(); ++i) sum += dn[i] * result[i];
            return sum;
        };
        // A central difference is off by step²/6 of the third derivative, about 1e-9, and by 1e-16/step of rounding.
        constexpr double kStep = 1e-5;
        for (std::size_t j = 0; j < x.size(); ++j) {
            const double slope = (loss(j, kStep) - loss(j, -kStep)) / (2 * kStep);
            CHECK(std::fabs(b.get(back.dx, row, static_cast<std::int64_t>(j)) - mean - slope) < 1e-7);
        }
    }
}

TEST_CASE("LayerNorm and LayerNormBackward give the same bits for any number of threads") {
    require_same_bits_for_any_thread_count([](Buffers& b) { return layer_norm(b, DType::bf16, 1000, 72); });
    require_same_bits_for_any_thread_count([](Buffers& b) { return layer_norm_backward(b, DType::bf16, 1000, 72); });
}

TEST_CASE("LayerNorm and LayerNormBackward name an operand of the wrong shape, and another tile") {
    Buffers buffers;
    LayerNorm forward = layer_norm(buffers, DType::f32, 65, 8);
    forward.rstd.cols = 64;
    CHECK_THROWS_WITH(cpu::run(forward, buffers.memory()), "LayerNorm: operand rstd is (1, 64), expected (1, 65)");
    LayerNormBackward op = layer_norm_backward(buffers, DType::f32, 65, 8);
    op.dx_sum.rows = 1;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "LayerNormBackward: operand dx_sum is (1, 8), expected (2, 8)");
    op.tile = 32;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "LayerNormBackward: tile is 32, expected 64");
}
