// FoldBeta and BetaBackward against W beta + b and its gradients in plain fp64 loops.
#include "kernels/math/rms.h"
#include "tests/kernels/gemm_programs.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr std::int64_t kTile = BetaBackward::kTileRows;

/// Weights of a norm of either sign, one of them 0.
View norm_weights(Buffers& buffers, DType compute, std::int64_t d) {
    const View gamma = buffers.random(compute, 1, d, -2, 2);
    buffers.set(gamma, 0, d / 2, 0);
    return gamma;
}

/// W's working copy with norm_factor(gamma) in its columns.
View working_copy(Buffers& buffers, const View& master, const View& gamma, DType storage) {
    const RoundWeights op{.master = master,
                          .gamma = gamma,
                          .working = buffers.matrix(storage, master.rows, master.cols, master.cols + kGap)};
    cpu::run(op, buffers.memory());
    return op.working;
}

BetaBackward beta_backward(Buffers& buffers, const View& working) {
    const DType compute = compute_of(working.dtype);
    const std::int64_t n = working.rows, d = working.cols;
    return {.db = buffers.random(compute, 1, n, -3, 3),
            .working = working,
            .beta = buffers.random(compute, 1, d),
            .grad = buffers.random(compute, n, d, -1, 1, d + kGap),
            .dbeta = buffers.matrix(compute, tiles(n, kTile), d, d + kGap),
            .tile = kTile};
}

template <class Fn>
void for_each_case(const Fn& fn) {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        for (const auto& [n, d] : {std::pair{1, 1}, std::pair{63, 24}, std::pair{64, 7}, std::pair{200, 136}}) {
            INFO(name_of(storage) << ", N " << n << ", d " << d);
            Buffers buffers;
            const DType compute = compute_of(storage);
            const View master = buffers.random(compute, n, d), gamma = norm_weights(buffers, compute, d);
            fn(buffers, compute, master, gamma, working_copy(buffers, master, gamma, storage));
        }
}

}  // namespace

TEST_CASE("FoldBeta is W beta + b of the W that the working copy carries") {
    for_each_case([](Buffers& buffers, DType compute, const View& master, const View& gamma, const View& working) {
        const std::int64_t n = working.rows, d = working.cols;
        for (const bool has_bias : {true, false}) {
            const FoldBeta op{.working = working,
                              .gamma = gamma,
                              .beta = buffers.random(compute, 1, d),
                              .bias = has_bias ? buffers.random(compute, 1, n, -3, 3) : View{},
                              .v = buffers.vector(compute, n)};
            cpu::run(op, buffers.memory());
            // Each weight is rounded once, to storage, and by one product.
            const double rounding = (working.dtype == compute ? 0 : epsilon(working.dtype) / 2) + epsilon(compute);
            check_all("v", buffers, op.v, [&](std::int64_t, std::int64_t row) {
                double sum = has_bias ? buffers.get(op.bias, 0, row) : 0, magnitude = std::fabs(sum), rounded = 0;
                for (std::int64_t j = 0; j < d; ++j) {
                    const double term = buffers.get(master, row, j) * buffers.get(op.beta, 0, j);
                    sum += term;
                    magnitude += std::fabs(term);
                    rounded += term * term;
                }
                // Roundings of weights are independent: ten deviations of their sum.
                return Expectation{sum, kSummation * epsilon(compute) * magnitude + 10 * rounding * std::sqrt(rounded)};
            });
        }
    });
}

TEST_CASE("FoldBeta sums what it reads, to the last bits") {
    for_each_case([](Buffers& buffers, DType compute, const View&, const View& gamma, const View& working) {
        const FoldBeta op{.working = working,
                          .gamma = gamma,
                          .beta = buffers.random(compute, 1, working.cols),
                          .bias = buffers.random(compute, 1, working.rows, -3, 3),
                          .v = buffers.vector(compute, working.rows)};
        cpu::run(op, buffers.memory());
        check_all("v", buffers, op.v, [&](std::int64_t, std::int64_t row) {
            double sum = buffers.get(op.bias, 0, row), magnitude = std::fabs(sum);
            for (std::int64_t j = 0; j < working.cols; ++j) {
                const double term =
                    buffers.get(working, row, j) * buffers.get(op.beta, 0, j) / norm_factor(buffers.get(gamma, 0, j));
                sum += term;
                magnitude += std::fabs(term);
            }
            return Expectation{sum, kSummation * epsilon(compute) * magnitude};
        });
    });
}

TEST_CASE("BetaBackward adds db ⊗ beta, and its partials finish as db W") {
    for_each_case([](Buffers& buffers, DType compute, const View& master, const View& gamma, const View& working) {
        const std::int64_t n = working.rows, d = working.cols;
        const BetaBackward op = beta_backward(buffers, working);
        const Values old = buffers.values(op.grad);
        cpu::run(op, buffers.memory());
        check_all("grad", buffers, op.grad, [&](std::int64_t row, std::int64_t column) {
            const double before = old[static_cast<std::size_t>(row * d + column)];
            const double term = buffers.get(op.db, 0, row) * buffers.get(op.beta, 0, column);
            return Expectation{before + term, kArithmetic * epsilon(compute) * (std::fabs(before) + std::fabs(term))};
        });
        check_partials("dbeta", buffers, op.dbeta, kTile, n, 0, [&](std::int64_t column, std::int64_t row) {
            return buffers.get(op.db, 0, row) * buffers.get(working, row, column);
        });
        FinishColumnSums finish;
        finish.add({.partials = op.dbeta, .gamma = gamma, .grad = {buffers.vector(compute, d), Beta::overwrite}});
        cpu::run(finish, buffers.memory());
        const double rounding = (working.dtype == compute ? 0 : epsilon(working.dtype) / 2) + epsilon(compute);
        check_all("the gradient of beta", buffers, finish.sums[0].grad, [&](std::int64_t, std::int64_t column) {
            double sum = 0, magnitude = 0, rounded = 0;
            for (std::int64_t row = 0; row < n; ++row) {
                const double term = buffers.get(op.db, 0, row) * buffers.get(master, row, column);
                sum += term;
                magnitude += std::fabs(term);
                rounded += term * term;
            }
            return Expectation{sum, kSummation * epsilon(compute) * magnitude + 10 * rounding * std::sqrt(rounded)};
        });
    });
}

TEST_CASE("FoldBeta and BetaBackward give the same bits for any number of threads") {
    require_same_bits_for_any_thread_count([](Buffers& b) {
        return FoldBeta{.working = b.random(DType::bf16, 1000, 72),
                        .gamma = b.random(DType::f32, 1, 72, 0.5, 2),
                        .beta = b.random(DType::f32, 1, 72),
                        .bias = b.random(DType::f32, 1, 1000),
                        .v = b.vector(DType::f32, 1000)};
    });
    require_same_bits_for_any_thread_count(
        [](Buffers& b) { return beta_backward(b, b.random(DType::bf16, 1000, 72)); });
}

TEST_CASE("FoldBeta and BetaBackward name an operand of the wrong shape, and another tile") {
    Buffers buffers;
    const View working = buffers.random(DType::f32, 65, 8);
    FoldBeta fold{.working = working,
                  .gamma = buffers.random(DType::f32, 1, 8),
                  .beta = buffers.random(DType::f32, 1, 7),
                  .bias = {},
                  .v = buffers.vector(DType::f32, 65)};
    CHECK_THROWS_WITH(cpu::run(fold, buffers.memory()), "FoldBeta: operand beta is (1, 7), expected (1, 8)");
    fold.beta = {};
    CHECK_THROWS_WITH(cpu::run(fold, buffers.memory()), "FoldBeta: operand beta is missing");
    BetaBackward op = beta_backward(buffers, working);
    op.dbeta.rows = 1;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "BetaBackward: operand dbeta is (1, 8), expected (2, 8)");
    op.tile = 32;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "BetaBackward: tile is 32, expected 64");
}
