// CentreColumns on the GPU against cpu::run.
#include "tests/hopper/gpu_copy.h"
#include "tests/hopper/pointwise_check.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Sums of up to 8192 elements in another order, next to the largest element.
constexpr double kTolerance = kSumTolerance;

void check_shape(DType type, std::int64_t rows, std::int64_t columns, std::int64_t gap, bool with_bias = false) {
    Case made;
    CentreColumns op;
    op.matrix = made.add("matrix", type, rows, columns, Fill::normal, 1, Access::in, gap);
    op.out = made.add("out", type, rows, columns, Fill::nothing, 0, Access::out, 2 * gap);
    if (with_bias) {
        op.bias = made.add("bias", DType::f32, 1, rows, Fill::normal, 1);
        op.bias_out = made.result("bias_out", 1, rows);
    }
    made.op = op;
    check(made, kTolerance);
}

}  // namespace

TEST_CASE("columns without their means: ragged rows and strips, gaps", "[gpu]") {
    if (!has_hopper()) return;
    for (const DType type : {DType::bf16, DType::f32})
        for (const std::int64_t rows : {2, 255, 256, 768, 1025, 8192})
            for (const std::int64_t columns : {8, 16, 40, 768}) check_shape(type, rows, columns, 8);
    check_shape(DType::f32, 300, 12, 4);
    check_shape(DType::bf16, 768, 3072, 0);
    check_shape(DType::f32, 768, 3072, 0);
}

TEST_CASE("a bias without its mean next to the columns", "[gpu]") {
    if (!has_hopper()) return;
    for (const DType type : {DType::bf16, DType::f32})
        for (const std::int64_t rows : {2, 31, 768, 1024, 5000})
            for (const std::int64_t columns : {8, 264}) check_shape(type, rows, columns, 8, true);
}

TEST_CASE("columns in place have the bits of a copy", "[gpu]") {
    if (!has_hopper()) return;
    for (const DType type : {DType::bf16, DType::f32})
        for (const auto& [rows, columns] : {std::pair{300, 40}, {2000, 8}, {768, 768}}) {
            INFO(name_of(type) << " " << rows << " x " << columns);
            Buffers buffers;
            const View matrix = buffers.random(type, rows, columns, -1, 3, columns + 8);
            const View bias = buffers.random(DType::f32, 1, rows, -1, 3);
            const CentreColumns copy{.matrix = matrix,
                                     .out = buffers.matrix(type, rows, columns),
                                     .bias = bias,
                                     .bias_out = buffers.vector(DType::f32, rows)};
            run_on_gpu(copy, buffers);
            run_on_gpu(CentreColumns{.matrix = matrix, .out = matrix, .bias = bias, .bias_out = bias}, buffers);
            CHECK((buffers.values(matrix) == buffers.values(copy.out)));
            CHECK((buffers.values(bias) == buffers.values(copy.bias_out)));
            CHECK(buffers.gaps_untouched(matrix));
        }
}

TEST_CASE("CentreColumns on the GPU refuses rows that are not whole vectors, and a matrix of one row", "[gpu]") {
    if (!has_hopper()) return;
    Buffers buffers;
    CentreColumns op{.matrix = buffers.random(DType::bf16, 16, 12), .out = buffers.matrix(DType::bf16, 16, 12)};
    CHECK(refusal(op, buffers) ==
          "CentreColumns: rows of matrix (12 elements, 12 apart) are not whole vectors of 16 bytes");
    op = {.matrix = buffers.random(DType::f32, 16, 6), .out = buffers.matrix(DType::f32, 16, 6)};
    CHECK(refusal(op, buffers) ==
          "CentreColumns: rows of matrix (6 elements, 6 apart) are not whole vectors of 16 bytes");
    op = {.matrix = buffers.random(DType::f32, 16, 8), .out = buffers.matrix(DType::f32, 16, 8)};
    op.bias = buffers.random(DType::f32, 1, 8);
    op.bias_out = op.bias;
    CHECK(refusal(op, buffers) == "CentreColumns: operand bias is (1, 8), expected (1, 16)");
    op = {.matrix = buffers.random(DType::f32, 1, 8), .out = buffers.matrix(DType::f32, 1, 8)};
    CHECK(refusal(op, buffers) == "CentreColumns: operand matrix has one row, which is its own mean");
}
