// LayerNorm and LayerNormBackward on the GPU against cpu::run.
#include "tests/hopper/gpu_copy.h"
#include "tests/hopper/pointwise_check.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr std::int64_t kTile = LayerNormBackward::kTileRows;

/// Sums over 64 rows of dx, which follows from the mean of t x̂: on either side a sum of up to 20,008 terms, and where
/// there is one row, dx_sum is one dx and as small as two terms that cancel leave it.
constexpr double kSumsTolerance = 1e-4;

}  // namespace

TEST_CASE("LayerNorm on the GPU: ragged rows and chunks, gaps", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t rows : {1, 63, 64, 200})
        for (const std::int64_t width : {8, 256, 264, 768, 8192}) {
            Case made;
            LayerNorm op;
            op.x = made.add("x", DType::bf16, rows, width, Fill::normal, 1, Access::in, 8);
            op.rstd = made.add("rstd", DType::f32, 1, rows, Fill::positive, 1);
            op.gamma = made.add("gamma", DType::f32, 1, width, Fill::normal, 1);
            op.beta = made.add("beta", DType::f32, 1, width, Fill::normal, 1);
            op.n = made.add("n", DType::bf16, rows, width, Fill::nothing, 0, Access::out, 16);
            made.op = op;
            check(made, kSumTolerance);
        }
}

TEST_CASE("back through LayerNorm on the GPU: ragged tiles of rows, chunks of columns, gaps", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t rows : {1, 61, 64, 200})
        for (const std::int64_t width : {8, 256, 264, 768, 8192, 20008})
            for (const bool has_sums : {true, false}) {
                Case made;
                LayerNormBackward op;
                const std::int64_t tiles = ceil_div(rows, kTile);
                op.dn = made.add("dn", DType::bf16, rows, width, Fill::normal, 1, Access::in, 8);
                op.x = made.add("x", DType::bf16, rows, width, Fill::normal, 1, Access::in, 16);
                op.rstd = made.add("rstd", DType::f32, 1, rows, Fill::positive, 1);
                op.gamma = made.add("gamma", DType::f32, 1, width, Fill::normal, 1);
                op.dx = made.add("dx", DType::bf16, rows, width, Fill::nothing, 0, Access::out, 8);
                op.dgamma = made.add("dgamma", DType::f32, tiles, width, Fill::nothing, 0, Access::out, 4);
                if (has_sums) {
                    op.dbeta = made.add("dbeta", DType::f32, tiles, width, Fill::nothing, 0, Access::out, 1);
                    op.dx_sum = made.add("dx_sum", DType::f32, tiles, width, Fill::nothing, 0, Access::out, 3);
                }
                op.tile = kTile;
                made.op = op;
                check(made, kSumsTolerance);
            }
}

TEST_CASE("LayerNorm and LayerNormBackward on the GPU refuse rows that are not whole vectors", "[gpu]") {
    if (!has_hopper()) return;
    Buffers buffers;
    const View x = buffers.random(DType::bf16, 16, 12), gamma = buffers.random(DType::f32, 1, 12);
    const View rstd = buffers.random(DType::f32, 1, 16, 0.5, 2);
    const LayerNorm forward{
        .x = x, .rstd = rstd, .gamma = gamma, .beta = gamma, .n = buffers.matrix(DType::bf16, 16, 12)};
    CHECK(refusal(forward, buffers) ==
          "LayerNorm: rows of x (12 elements, 12 apart) are not whole vectors of 16 bytes");
    const LayerNormBackward back{.dn = x,
                                 .x = x,
                                 .rstd = rstd,
                                 .gamma = gamma,
                                 .dx = buffers.matrix(DType::bf16, 16, 12),
                                 .dgamma = buffers.matrix(DType::f32, 1, 12),
                                 .dbeta = {},
                                 .dx_sum = {},
                                 .tile = kTile};
    CHECK(refusal(back, buffers) ==
          "LayerNormBackward: rows of dn (12 elements, 12 apart) are not whole vectors of 16 bytes");
}
