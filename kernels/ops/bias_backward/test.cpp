// BiasBackward against its formula in plain fp64 loops.
#include "tests/kernels/gemm_programs.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr std::int64_t kTile = BiasBackward::kTileRows;

BiasBackward bias_backward(Buffers& buffers, DType storage, std::int64_t m, std::int64_t n, bool has_rstd) {
    const DType compute = compute_of(storage);
    return {.dz = buffers.random(storage, m, n, -1, 1, n + kGap),
            .rstd = has_rstd ? buffers.random(compute, 1, m, 0.01, 2) : View{},
            .bias = buffers.random(compute, 1, n, -3, 3),
            .dot = buffers.random(compute, 1, m, -1, 1),
            .sum = buffers.matrix(compute, tiles(m, kTile), n, n + kGap),
            .tile = kTile};
}

}  // namespace

TEST_CASE("BiasBackward takes the bias out of dot, and sums dz without its factor over tiles of rows") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        for (const auto& [m, n] : {std::pair{1, 8}, std::pair{63, 24}, std::pair{64, 8}, std::pair{200, 136}})
            for (const bool has_rstd : {false, true}) {
                INFO(name_of(storage) << ", M " << m << ", N " << n << (has_rstd ? ", rstd" : ""));
                Buffers buffers;
                const BiasBackward op = bias_backward(buffers, storage, m, n, has_rstd);
                const Values dot = buffers.values(op.dot);
                cpu::run(op, buffers.memory());
                const DType compute = compute_of(storage);
                check_all("dot", buffers, op.dot, [&](std::int64_t, std::int64_t row) {
                    double sum = 0, magnitude = std::fabs(dot[static_cast<std::size_t>(row)]);
                    for (std::int64_t j = 0; j < n; ++j) {
                        const double term = buffers.get(op.bias, 0, j) * buffers.get(op.dz, row, j);
                        sum += term;
                        magnitude += std::fabs(term);
                    }
                    return Expectation{dot[static_cast<std::size_t>(row)] - sum,
                                       kSummation * epsilon(compute) * magnitude};
                });
                const auto over = [&](std::int64_t row) { return has_rstd ? 1 / buffers.get(op.rstd, 0, row) : 1.0; };
                check_partials("sum", buffers, op.sum, kTile, m, 0, [&](std::int64_t column, std::int64_t row) {
                    return buffers.get(op.dz, row, column) * over(row);
                });
            }
}

TEST_CASE("BiasBackward gives the same bits for any number of threads") {
    require_same_bits_for_any_thread_count([](Buffers& b) { return bias_backward(b, DType::bf16, 1000, 72, true); });
}

TEST_CASE("BiasBackward names an operand of the wrong shape, and another tile") {
    Buffers buffers;
    BiasBackward op = bias_backward(buffers, DType::f32, 65, 8, true);
    op.sum.rows = 1;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "BiasBackward: operand sum is (1, 8), expected (2, 8)");
    op.tile = 32;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "BiasBackward: tile is 32, expected 64");
}
