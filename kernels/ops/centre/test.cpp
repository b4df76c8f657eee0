// CentreColumns against its formula in plain fp64 loops.
#include "tests/kernels/gemm_programs.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Sums in the compute type, and one rounding of each element.
void check_centred(const Buffers& buffers, const View& out, const Values& before) {
    const DType compute = compute_of(out.dtype);
    const std::int64_t n = out.rows, k = out.cols;
    Values means(static_cast<std::size_t>(k)), magnitudes(means.size());
    for (std::int64_t i = 0; i < n * k; ++i) {
        const double value = before[static_cast<std::size_t>(i)] / static_cast<double>(n);
        means[static_cast<std::size_t>(i % k)] += value;
        magnitudes[static_cast<std::size_t>(i % k)] += std::fabs(value);
    }
    check_all("out", buffers, out, [&](std::int64_t row, std::int64_t column) {
        const double value = before[static_cast<std::size_t>(row * k + column)];
        const double expected = value - means[static_cast<std::size_t>(column)];
        const double rounding = out.dtype == compute ? 0 : epsilon(out.dtype) / 2;
        const double absolute = epsilon(compute) * (kSummation * magnitudes[static_cast<std::size_t>(column)] +
                                                    kArithmetic * std::fabs(value));
        return Expectation{expected, absolute * (1 + rounding) + rounding * std::fabs(expected)};
    });
}

const std::vector<std::pair<int, int>> kShapes{{2, 8}, {300, 1}, {63, 24}, {200, 136}};

}  // namespace

TEST_CASE("CentreColumns takes the mean over rows out of each column, as a copy and in place") {
    for (const DType type : {DType::f64, DType::f32, DType::bf16})
        for (const auto& [n, k] : kShapes)
            for (const bool in_place : {false, true}) {
                INFO(name_of(type) << ", N " << n << ", K " << k << (in_place ? ", in place" : ""));
                Buffers buffers;
                const View matrix = buffers.random(type, n, k, -1, 3, k + kGap);
                const Values before = buffers.values(matrix);
                const CentreColumns op{.matrix = matrix,
                                       .out = in_place ? matrix : buffers.matrix(type, n, k, k + 2 * kGap)};
                cpu::run(op, buffers.memory());
                check_centred(buffers, op.out, before);
                if (!in_place) CHECK((buffers.values(matrix) == before));
            }
}

TEST_CASE("CentreColumns takes the mean out of a bias too, which has the compute type") {
    for (const DType type : {DType::f64, DType::f32, DType::bf16})
        for (const std::int64_t n : {2, 300})
            for (const bool in_place : {false, true}) {
                INFO(name_of(type) << ", N " << n << (in_place ? ", in place" : ""));
                Buffers buffers;
                const View matrix = buffers.random(type, n, 8, -1, 3),
                           bias = buffers.random(compute_of(type), 1, n, -1, 3);
                const Values before = buffers.values(matrix), bias_before = buffers.values(bias);
                const CentreColumns op{.matrix = matrix,
                                       .out = buffers.matrix(type, n, 8),
                                       .bias = bias,
                                       .bias_out = in_place ? bias : buffers.vector(compute_of(type), n)};
                cpu::run(op, buffers.memory());
                check_centred(buffers, op.out, before);
                View column = op.bias_out;
                column.rows = n;
                column.cols = column.ld = 1;
                check_centred(buffers, column, bias_before);
                if (!in_place) CHECK((buffers.values(bias) == bias_before));
            }
}

TEST_CASE("what a centred matrix and bias add to a row of the stream has mean 0") {
    constexpr std::int64_t kWidth = 40, kInner = 24;
    Buffers b;
    const CentreColumns op{.matrix = b.random(DType::f64, kWidth, kInner, -1, 3),
                           .out = b.matrix(DType::f64, kWidth, kInner),
                           .bias = b.random(DType::f64, 1, kWidth, -1, 3),
                           .bias_out = b.vector(DType::f64, kWidth)};
    cpu::run(op, b.memory());
    const Values y = b.values(b.random(DType::f64, 1, kInner));
    double sum = 0;
    for (std::int64_t o = 0; o < kWidth; ++o) {
        sum += b.get(op.bias_out, 0, o);
        for (std::int64_t j = 0; j < kInner; ++j) sum += b.get(op.out, o, j) * y[static_cast<std::size_t>(j)];
    }
    CHECK(std::fabs(sum) < 1e-12);
}

TEST_CASE("CentreColumns gives the same bits for any number of threads") {
    require_same_bits_for_any_thread_count([](Buffers& b) {
        return CentreColumns{.matrix = b.random(DType::bf16, 1000, 200), .out = b.matrix(DType::bf16, 1000, 200)};
    });
}

TEST_CASE("CentreColumns names a result of another shape or dtype, and refuses a matrix of one row") {
    Buffers buffers;
    CentreColumns op{.matrix = buffers.random(DType::f32, 65, 8), .out = buffers.matrix(DType::f32, 64, 8)};
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "CentreColumns: operand out is (64, 8), expected (65, 8)");
    op.out = buffers.matrix(DType::bf16, 65, 8);
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "CentreColumns: operand out is bf16, expected f32");
    op.out = op.matrix;
    op.bias = buffers.random(DType::f32, 1, 64);
    op.bias_out = op.bias;
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "CentreColumns: operand bias is (1, 64), expected (1, 65)");
    op.bias = buffers.random(DType::f32, 1, 65);
    op.bias_out = {};
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "CentreColumns: operand bias_out is missing");
    const View row = buffers.random(DType::f32, 1, 8);
    CHECK_THROWS_WITH(cpu::run(CentreColumns{.matrix = row, .out = row}, buffers.memory()),
                      "CentreColumns: operand matrix has one row, which is its own mean");
}
