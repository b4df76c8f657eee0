// What the tests of GEMM programs share: GEMMs in plain fp64 loops, operands of the programs, comparisons.
//
// Tolerances. The rounding errors of a sum of K terms of size σ are independent, so the executor's accumulator strays
// from exact by about 0.4 u σ K, where u is half the compute type's epsilon; Product::error allows ten times that. An
// output may stray by that times how strongly its formula depends on the accumulator, by a few roundings of the
// epilogue, and by the one rounding of its storage. A sum of many such terms may stray by 1e-5 of the sum of their
// magnitudes in float, and by the terms' own errors, which again add up like a random walk. A value that was rounded to
// bf16 too early fails by a factor of at least ten.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/run.h"
#include "kernels/ops.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"

namespace coda::test {

using Values = std::vector<double>;

constexpr double kArithmetic = 8;  // epsilons of the compute type for the epilogue's own operations
constexpr double kSummation = 84;  // epsilons for a sum, relative to its magnitudes: 1e-5 in float

struct ProgramShape {
    std::int64_t m, n, k, tile;
};
constexpr std::int64_t kHead = 8;  // head size of the programs with heads; divides every n below
constexpr std::int64_t kGap = 3;   // poisoned elements after every row

/// The smallest shape; ragged tiles; a tile wider than the matrix; several macro-tiles and blocks of K; more rows than
/// columns.
inline const std::vector<ProgramShape> kProgramShapes{
    {1, 8, 1, 5}, {7, 24, 33, 5}, {37, 72, 20, 128}, {131, 272, 270, 128}, {210, 40, 9, 16}};

inline std::int64_t tiles(std::int64_t length, std::int64_t tile) { return (length + tile - 1) / tile; }

/// Columns, or rows, of partial t.
struct Range {
    std::int64_t begin, end;
};
inline Range tile_range(std::int64_t t, std::int64_t tile, std::int64_t length) {
    return {t * tile, std::min((t + 1) * tile, length)};
}

/// a wᵀ or a w in fp64, and by how much the executor's accumulators may differ.
struct Product {
    std::int64_t n = 0;
    Values acc;
    double error = 0;

    Product(const Buffers& buffers, const View& a_view, const View& w_view, WeightLayout layout) {
        const Values a = buffers.values(a_view), w = buffers.values(w_view);
        const bool out_in = layout == WeightLayout::out_in;
        const std::int64_t m = a_view.rows, k = a_view.cols;
        n = out_in ? w_view.rows : w_view.cols;
        acc.assign(static_cast<std::size_t>(m * n), 0);
        double squares = 0;
        for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t p = 0; p < k; ++p) {
                for (std::int64_t j = 0; j < n; ++j) {
                    const double term = a[static_cast<std::size_t>(i * k + p)] *
                                        w[static_cast<std::size_t>(out_in ? j * k + p : p * n + j)];
                    acc[static_cast<std::size_t>(i * n + j)] += term;
                    squares += term * term;
                }
            }
        }
        const double sigma = std::sqrt(squares / static_cast<double>(m * n * k));
        error = 4 * epsilon(compute_of(a_view.dtype)) * static_cast<double>(k) * std::max(sigma, 1.0 / 3);
    }
    double operator()(std::int64_t row, std::int64_t col) const { return acc[static_cast<std::size_t>(row * n + col)]; }
};

inline double largest(const Values& values) {
    double result = 0;
    for (const double value : values) result = std::max(result, std::fabs(value));
    return result;
}

/// |actual(i, j) - expected| <= tolerance for every element, where compare(i, j) gives {expected, tolerance}; NaN
/// fails. Gaps between rows must be untouched.
struct Expectation {
    double expected, tolerance;
};
template <class Compare>
void check_all(const char* what, const Buffers& buffers, const View& actual, const Compare& compare) {
    std::int64_t wrong = 0, row = 0, col = 0;
    double got = 0;
    Expectation first{};
    for (std::int64_t i = 0; i < actual.rows; ++i) {
        for (std::int64_t j = 0; j < actual.cols; ++j) {
            const Expectation want = compare(i, j);
            const double value = buffers.get(actual, i, j);
            if (std::fabs(value - want.expected) <= want.tolerance) continue;
            if (wrong++ == 0) row = i, col = j, got = value, first = want;
        }
    }
    INFO(what << " (" << actual.rows << ", " << actual.cols << ") of " << name_of(actual.dtype) << ": first wrong at ("
              << row << ", " << col << "): " << got << ", expected " << first.expected << " to " << first.tolerance);
    CHECK(wrong == 0);
    CHECK(buffers.gaps_untouched(actual));
}

/// Elements that are rounded once to storage: tolerance `absolute` before rounding, plus that rounding.
template <class Expected>
void check_close(const char* what, const Buffers& buffers, const View& actual, DType compute, double absolute,
                 const Expected& expected) {
    const double rounding = actual.dtype == compute ? 0 : epsilon(actual.dtype) / 2;
    check_all(what, buffers, actual, [&](std::int64_t i, std::int64_t j) {
        const double value = expected(i, j);
        return Expectation{value,
                           absolute * (1 + rounding) + (rounding + kArithmetic * epsilon(compute)) * std::fabs(value)};
    });
}

/// Partials (tiles, rows or columns) over `length` elements each: partial (t, i) is Σ_j term(i, j) over tile t. Each
/// term may be off by term_error.
template <class Term>
void check_partials(const char* what, const Buffers& buffers, const View& actual, std::int64_t tile,
                    std::int64_t length, double term_error, const Term& term) {
    check_all(what, buffers, actual, [&](std::int64_t t, std::int64_t i) {
        const Range range = tile_range(t, tile, length);
        double sum = 0, magnitude = 0;
        for (std::int64_t j = range.begin; j < range.end; ++j) {
            sum += term(i, j);
            magnitude += std::fabs(term(i, j));
        }
        const double walk = 4 * std::sqrt(static_cast<double>(range.end - range.begin));
        return Expectation{sum, kSummation * epsilon(actual.dtype) * magnitude + walk * term_error};
    });
}

/// Calls fn(storage, compute, shape) for every storage type and shape.
template <class Fn>
void for_each_program_case(const Fn& fn) {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        for (const ProgramShape& shape : kProgramShapes) {
            INFO("storage " << name_of(storage) << ", M " << shape.m << ", N " << shape.n << ", K " << shape.k
                            << ", tile " << shape.tile);
            fn(storage, compute_of(storage), shape);
        }
    }
}

/// The operands of one program: a and w, and others as needed.
struct Inputs {
    Buffers buffers;
    View a, w;

    Inputs(DType storage, const ProgramShape& shape, WeightLayout layout) : Inputs(storage, shape, layout, storage) {}
    Inputs(DType storage, const ProgramShape& shape, WeightLayout layout, DType type_of_a) {
        const bool out_in = layout == WeightLayout::out_in;
        a = in(type_of_a, shape.m, shape.k);
        w = in(storage, out_in ? shape.n : shape.k, out_in ? shape.k : shape.n);
    }
    View in(DType dtype, std::int64_t rows, std::int64_t cols) {
        return buffers.random(dtype, rows, cols, -1, 1, cols + kGap);
    }
    View out(DType dtype, std::int64_t rows, std::int64_t cols) {
        return buffers.matrix(dtype, rows, cols, cols + kGap);
    }
    View rstd(DType compute, std::int64_t m) { return buffers.random(compute, 1, m, 0.5, 2); }
    /// A result that is rounded to f8e4m3: M is `rows`. `by_rows`: in both layouts.
    Rounded rounded(std::int64_t rows, std::int64_t cols, double scale, double amax, bool by_rows = true) {
        Rounded codes;
        codes.scale = buffers.scalar(DType::f32, scale);
        if (by_rows) codes.rows = out(DType::f8e4m3, rows, cols);
        codes.columns = out(DType::f8e4m3, cols, rows);
        codes.columns.order = ColumnOrder::paired;
        codes.amax = buffers.scalar(DType::f32, amax);
        return codes;
    }
    double operator()(const View& view, std::int64_t row, std::int64_t col) const {
        return buffers.get(view, row, col);
    }
    template <class Op>
    void run(const Op& op) {
        cpu::run(op, buffers.memory());
    }
};

/// FP8 factors of a program, a (M, K) and w (N, K), and the scalar that undoes their scales. `product` is that scalar
/// times a wᵀ.
struct F8Inputs : Inputs {
    static constexpr double kUndo = 0.375;
    View undo;
    Product product;

    /// `format`: of a.
    explicit F8Inputs(const ProgramShape& shape, DType format = DType::f8e4m3)
        : Inputs(DType::f8e4m3, shape, WeightLayout::out_in, format),
          undo(buffers.scalar(DType::f32, kUndo)),
          product(buffers, a, w, WeightLayout::out_in) {
        for (double& value : product.acc) value *= kUndo;
    }
};

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Calls fn(op, inputs, factor) for an op without and with the rstd factor; a and w are set.
template <class Program, class Fn>
void plain_and_rstd(DType storage, DType compute, const ProgramShape& shape, const Fn& fn) {
    Inputs in(storage, shape, WeightLayout::out_in);
    Program op;
    op.a = in.a;
    op.w = in.w;
    fn(op, in, [](std::int64_t) { return 1.0; });

    const View rstd = in.rstd(compute, shape.m);
    op.rstd = rstd;
    fn(op, in, [&](std::int64_t row) { return in(rstd, 0, row); });
}

}  // namespace coda::test
