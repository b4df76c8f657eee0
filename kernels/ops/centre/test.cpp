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

const std::vector<std::pair<int, int>> kShapes{{2, 8}, {2, 1}, {300, 1}, {63, 24}, {200, 136}};

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

TEST_CASE("CentreColumns centres a bias as a column") {
    for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
        INFO(name_of(type));
        Buffers buffers;
        View bias = buffers.random(type, 1, 300, -1, 3);
        const Values before = buffers.values(bias);
        bias.rows = 300;
        bias.cols = bias.ld = 1;
        cpu::run(CentreColumns{.matrix = bias, .out = bias}, buffers.memory());
        check_centred(buffers, bias, before);
    }
}

TEST_CASE("what a centred matrix and bias add to a row of the stream has mean 0") {
    constexpr std::int64_t kWidth = 40, kInner = 24;
    Buffers b;
    const View w = b.random(DType::f64, kWidth, kInner, -1, 3), bias = b.random(DType::f64, kWidth, 1, -1, 3);
    const CentreColumns of_w{.matrix = w, .out = b.matrix(DType::f64, kWidth, kInner)};
    const CentreColumns of_bias{.matrix = bias, .out = b.matrix(DType::f64, kWidth, 1)};
    cpu::run(of_w, b.memory());
    cpu::run(of_bias, b.memory());
    const Values y = b.values(b.random(DType::f64, 1, kInner));
    double sum = 0;
    for (std::int64_t o = 0; o < kWidth; ++o) {
        sum += b.get(of_bias.out, o, 0);
        for (std::int64_t j = 0; j < kInner; ++j) sum += b.get(of_w.out, o, j) * y[static_cast<std::size_t>(j)];
    }
    CHECK(std::fabs(sum) < 1e-12);
}

TEST_CASE("CentreColumns gives the same bits for any number of threads") {
    require_same_bits_for_any_thread_count([](Buffers& b) {
        return CentreColumns{.matrix = b.random(DType::bf16, 1000, 200), .out = b.matrix(DType::bf16, 1000, 200)};
    });
}

TEST_CASE("CentreColumns names a result of another shape or dtype, and refuses a bias that lies as a row") {
    Buffers buffers;
    CentreColumns op{.matrix = buffers.random(DType::f32, 65, 8), .out = buffers.matrix(DType::f32, 64, 8)};
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "CentreColumns: operand out is (64, 8), expected (65, 8)");
    op.out = buffers.matrix(DType::bf16, 65, 8);
    CHECK_THROWS_WITH(cpu::run(op, buffers.memory()), "CentreColumns: operand out is bf16, expected f32");
    const View row = buffers.random(DType::f32, 1, 8);
    CHECK_THROWS_WITH(cpu::run(CentreColumns{.matrix = row, .out = row}, buffers.memory()),
                      "CentreColumns: operand matrix has one row, which is its own mean; give a bias as a column");
}
