// The CPU GEMM core against a plain triple loop on small integers, which every type represents exactly. Any difference
// is a wrong index, so results are compared with ==.
#include "kernels/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <vector>

#include "tests/catch.h"
#include "tests/kernels/fixture.h"

namespace {

using namespace coda;
using cpu::Major;

struct Layout {
    Major a, b;
};
constexpr std::array kLayouts{Layout{Major::k, Major::k}, Layout{Major::k, Major::mn}, Layout{Major::mn, Major::k},
                              Layout{Major::mn, Major::mn}};

/// A (M, K) and B (K, N) in buffers of either layout, with `gap` unused elements after every row.
template <class Storage>
struct Problem {
    cpu::GemmShape shape;
    Layout layout;
    test::Buffers buffers;
    View a, b;

    Problem(const cpu::GemmShape& shape_, Layout layout_, std::int64_t gap) : shape(shape_), layout(layout_) {
        a = matrix(shape.m, layout.a, gap);
        b = matrix(shape.n, layout.b, gap);
    }
    View matrix(std::int64_t outer, Major major, std::int64_t gap) {
        const std::int64_t rows = major == Major::k ? outer : shape.k, cols = major == Major::k ? shape.k : outer;
        return buffers.integers(dtype_of<Storage>, rows, cols, 8, cols + gap);
    }
    cpu::GemmOperand<Storage> operand(const View& view, Major major) const {
        return {buffers.memory().at<Storage>(view), view.ld, major};
    }
    double a_at(std::int64_t m, std::int64_t k) const {
        return layout.a == Major::k ? buffers.get(a, m, k) : buffers.get(a, k, m);
    }
    double b_at(std::int64_t k, std::int64_t n) const {
        return layout.b == Major::k ? buffers.get(b, n, k) : buffers.get(b, k, n);
    }

    /// C as the core computes it, row-major; NaN where no tile was written.
    template <class Compute>
    std::vector<Compute> run() const {
        std::vector<Compute> c(static_cast<std::size_t>(shape.m * shape.n), Compute(NAN));
        cpu::gemm<Compute>(
            shape, operand(a, layout.a), operand(b, layout.b), [&](const cpu::AccumulatorTile<Compute>& tile) {
                for (std::int64_t i = 0; i < tile.rows; ++i)
                    for (std::int64_t j = 0; j < tile.cols; ++j)
                        c[static_cast<std::size_t>((tile.row + i) * shape.n + tile.col + j)] = tile[i][j];
            });
        return c;
    }
};

template <class Storage, class Compute>
void check_exact(const cpu::GemmShape& shape) {
    for (const Layout layout : kLayouts) {
        for (const std::int64_t gap : {0, 3}) {
            const Problem<Storage> problem(shape, layout, gap);
            const auto c = problem.template run<Compute>();
            std::int64_t wrong = 0;
            for (std::int64_t m = 0; m < shape.m; ++m) {
                for (std::int64_t n = 0; n < shape.n; ++n) {
                    double sum = 0;
                    for (std::int64_t k = 0; k < shape.k; ++k) sum += problem.a_at(m, k) * problem.b_at(k, n);
                    wrong += !(static_cast<double>(c[static_cast<std::size_t>(m * shape.n + n)]) == sum);
                }
            }
            INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k << ", A "
                      << (layout.a == Major::k ? "K" : "M") << "-major, B " << (layout.b == Major::k ? "K" : "N")
                      << "-major, gap " << gap);
            CHECK(wrong == 0);
        }
    }
}

// One element; ragged panels of rows and columns; leftover vectors of K; several blocks of K; several macro-tiles.
const std::vector<cpu::GemmShape> kShapes{{1, 1, 1},    {1, 16, 8},   {6, 1, 9},    {5, 17, 31},    {7, 33, 256},
                                          {13, 8, 257}, {97, 50, 20}, {40, 300, 3}, {200, 530, 12}, {11, 19, 600}};

}  // namespace

TEST_CASE("gemm is exact on integers, every layout and shape") {
    for (const auto& shape : kShapes) {
        check_exact<double, double>(shape);
        check_exact<float, float>(shape);
        check_exact<Bf16, float>(shape);
    }
}

TEST_CASE("gemm calls the epilogue once for every element, on tiles aligned to the units") {
    for (const std::int64_t row_unit : {1, 5, 64, 300}) {
        for (const std::int64_t column_unit : {1, 2, 7, 128, 700}) {
            const cpu::GemmShape shape{.m = 250, .n = 600, .k = 2, .row_unit = row_unit, .column_unit = column_unit};
            const Problem<float> problem(shape, kLayouts[0], 0);
            std::vector<int> visits(static_cast<std::size_t>(shape.m * shape.n), 0);
            bool aligned = true;
            std::mutex mutex;
            cpu::gemm<float>(shape, problem.operand(problem.a, Major::k), problem.operand(problem.b, Major::k),
                             [&](const cpu::AccumulatorTile<float>& tile) {
                                 const std::lock_guard lock(mutex);
                                 aligned = aligned && tile.row % row_unit == 0 && tile.col % column_unit == 0;
                                 for (std::int64_t i = tile.row; i < tile.row + tile.rows; ++i)
                                     for (std::int64_t j = tile.col; j < tile.col + tile.cols; ++j)
                                         ++visits[static_cast<std::size_t>(i * shape.n + j)];
                             });
            INFO("row unit " << row_unit << ", column unit " << column_unit);
            CHECK(aligned);
            CHECK(std::count(visits.begin(), visits.end(), 1) == shape.m * shape.n);
        }
    }
}

TEST_CASE("gemm gives the same bits for any number of threads") {
    test::Buffers buffers;
    const cpu::GemmShape shape{.m = 301, .n = 403, .k = 517};
    const View a = buffers.random(DType::f32, shape.m, shape.k), b = buffers.random(DType::f32, shape.n, shape.k);
    const auto run = [&](int threads) {
        const int before = omp_get_max_threads();
        omp_set_num_threads(threads);
        std::vector<float> c(static_cast<std::size_t>(shape.m * shape.n));
        cpu::gemm<float>(shape, cpu::GemmOperand<float>{buffers.memory().at<float>(a), a.ld, Major::k},
                         cpu::GemmOperand<float>{buffers.memory().at<float>(b), b.ld, Major::k},
                         [&](const cpu::AccumulatorTile<float>& tile) {
                             for (std::int64_t i = 0; i < tile.rows; ++i)
                                 std::copy(tile[i], tile[i] + tile.cols,
                                           c.begin() + (tile.row + i) * shape.n + tile.col);
                         });
        omp_set_num_threads(before);
        return c;
    };
    const auto one = run(1);
    CHECK((one == run(2)));
    CHECK((one == run(5)));
}
