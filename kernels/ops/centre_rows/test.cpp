// CentreRows against its definition in fp64.
#include "kernels/cpu/run.h"
#include "kernels/ops/centre_rows/op.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr std::int64_t kRows = 7, kWidth = 150;

CentreRows centre_rows(Buffers& buffers, DType storage) {
    return {.dx = buffers.random(storage, kRows, kWidth, -1, 2, kWidth + 3)};
}

}  // namespace

// A sum of 150 values below 2 and a difference below 3, each rounded in the compute type, and a rounding to storage.
TEST_CASE("CentreRows takes each row's mean out of it") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        Buffers buffers;
        const CentreRows op = centre_rows(buffers, storage);
        const std::vector<double> old = buffers.values(op.dx);
        cpu::run(op, buffers.memory());
        for (std::int64_t m = 0; m < kRows; ++m) {
            double mean = 0;
            for (std::int64_t j = 0; j < kWidth; ++j) mean += old[static_cast<std::size_t>(m * kWidth + j)] / kWidth;
            for (std::int64_t j = 0; j < kWidth; ++j) {
                const double expected = old[static_cast<std::size_t>(m * kWidth + j)] - mean;
                REQUIRE(std::abs(buffers.get(op.dx, m, j) - expected) <=
                        epsilon(storage) * std::abs(expected) + 310 * epsilon(compute_of(storage)));
            }
        }
        REQUIRE(buffers.gaps_untouched(op.dx));
    }
}

TEST_CASE("CentreRows gives the same bits for any number of threads") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        require_same_bits_for_any_thread_count([&](Buffers& buffers) { return centre_rows(buffers, storage); });
}
