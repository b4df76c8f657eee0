// How the oracle measures dgamma where all logits share an offset: tensor cores, simulated, next to exact sums.
#include "kernels/ops/linear_rms_backward/test_offset.h"

#include <algorithm>
#include <array>
#include <string>

#include "kernels/math/rms.h"
#include "kernels/oracle/column_sum.h"
#include "kernels/oracle/tolerance.h"
#include "tests/catch.h"

using namespace coda;
using namespace coda::test;

namespace {

using Values = std::vector<double>;

/// The accumulator of a tensor core that adds 16 products at once, each cut off, as the sum so far is, `kept` bits
/// below the largest of them, and keeps the sum in fp32, cut off too.
double tensor_core_sum(const Values& products, bool last_first, int kept) {
    constexpr std::size_t kGroup = 16;
    constexpr int kFraction = 23;
    const auto cut = [](double value, double largest, int bits) {
        const double unit = std::ldexp(1.0, std::ilogb(largest) - bits);
        return std::trunc(value / unit) * unit;
    };
    double sum = 0;
    for (std::size_t done = 0; done < products.size(); done += kGroup) {
        const double* group = &products[last_first ? products.size() - done - kGroup : done];
        double largest = std::fabs(sum);
        for (std::size_t i = 0; i < kGroup; ++i) largest = std::fmax(largest, std::fabs(group[i]));
        if (largest == 0) continue;
        double next = cut(sum, largest, kept);
        for (std::size_t i = 0; i < kGroup; ++i) next += cut(group[i], largest, kept);
        sum = next == 0 ? 0 : cut(next, next, kFraction);
    }
    return sum;
}

/// dgamma's sums in doubles, and in fp32 from the accumulators of simulated tensor cores.
struct Simulated {
    OffsetHead head;
    std::vector<oracle::ColumnSum> exact;  // per tile and column
    Values of_kernel, of_cublas;           // as exact: summed from the last product, and from the first
    Values row;                            // the share of each tile's row 5

    Simulated(const OffsetShape& shape, int kept) : head(shape) {
        const LinearRmsBackward& op = head.op;
        const auto count = static_cast<std::size_t>(op.dgamma.count());
        exact.resize(count), row.resize(count);
        std::vector<float> kernel(count), cublas(count);
        const Values a = head.buffers.values(op.a), w = head.buffers.values(op.w);
        const auto width = static_cast<std::size_t>(shape.width), vocab = static_cast<std::size_t>(shape.vocab);
        Values column_norms(width), products(vocab);
        for (std::size_t i = 0; i < w.size(); ++i) column_norms[i % width] += w[i] * w[i];
        for (std::int64_t m = 0; m < shape.tokens; ++m) {
            const double* element = &a[static_cast<std::size_t>(m) * vocab];
            double square = 0;
            for (std::size_t v = 0; v < vocab; ++v) square += element[v] * element[v];
            const double factor = rms_backward_row(head.buffers.get(op.alpha, 0, 0), head.buffers.get(op.rstd, 0, m),
                                                   0.0, head.buffers.get(op.scale, 0, m))
                                      .of_acc;
            for (std::size_t j = 0; j < width; ++j) {
                double acc = 0;
                for (std::size_t v = 0; v < vocab; ++v) acc += products[v] = element[v] * w[v * width + j];
                const double x = head.buffers.get(op.x, m, static_cast<std::int64_t>(j));
                const std::size_t i = static_cast<std::size_t>(m / op.tile) * width + j;
                exact[i].add(factor * x, acc, std::sqrt(square * column_norms[j] / static_cast<double>(vocab)));
                kernel[i] += static_cast<float>(factor * tensor_core_sum(products, true, kept) * x);
                cublas[i] += static_cast<float>(factor * tensor_core_sum(products, false, kept) * x);
                if (m % op.tile == 5) row[i] = factor * acc * x;
            }
        }
        of_kernel.assign(kernel.begin(), kernel.end());
        of_cublas.assign(cublas.begin(), cublas.end());
    }

    /// As the oracle reports dgamma: deviations from its own sums, here the exact ones.
    oracle::Report report(const Values& dgamma) const {
        double squares = 0, largest = 0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
            const double off = std::fabs(exact[i].deviation(dgamma[i]));
            squares += off * off;
            largest = std::max(largest, off);
        }
        return {.operands = {{"dgamma", std::sqrt(squares / static_cast<double>(exact.size())), largest}}};
    }
    bool accepts(const Values& dgamma) const {
        const oracle::Report found = report(dgamma);
        UNSCOPED_INFO(oracle::line_of("simulated", head.op, found));
        return oracle::within_tolerance(head.op, found);
    }
    /// RMS of the error, relative to the RMS of the result: what it would be without a view of what cancels.
    double relative_to_result(const Values& dgamma) const {
        double squares = 0, result = 0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
            squares += (dgamma[i] - exact[i].value()) * (dgamma[i] - exact[i].value());
            result += exact[i].value() * exact[i].value();
        }
        return std::sqrt(squares / result);
    }
    /// The exact sums, changed by change(sum, row's share, element).
    template <class Change>
    Values altered(const Change& change) const {
        Values sums;
        for (std::size_t i = 0; i < exact.size(); ++i) sums.push_back(change(exact[i].value(), row[i], i));
        return sums;
    }
};

constexpr std::int64_t kTokens = 128, kWidth = 32, kVocab = 1024;

}  // namespace

TEST_CASE("dgamma of logits with a common offset is as exact as the sums that cancel in it") {
    for (const bool one_column : {false, true})
        for (const double offset : {100, 300, 2000})
            for (const int kept : {23, 25}) {
                const Simulated made({kTokens, kWidth, kVocab, 0.1, offset, one_column}, kept);
                INFO("offset " << offset << (one_column ? " of one column, " : " of all columns, ") << kept << " bits");
                CHECK(made.accepts(made.of_kernel));
                CHECK(made.accepts(made.of_cublas));
                // Not so relative to the result. (An offset in one column may happen to have few bits.)
                if (!one_column && kept == 23)
                    CHECK(made.relative_to_result(made.of_kernel) > 5 * oracle::tolerance(made.head.op, "dgamma").rms);
            }
}

TEST_CASE("a mistake in dgamma is found next to the sums that cancel") {
    for (const bool one_column : {false, true})
        for (const double offset : {0, 100, 300, 2000}) {
            // Where all columns carry an offset of 2000, what tensor cores may lose is the size of the result.
            if (!one_column && offset > 300) continue;
            const Simulated made({kTokens, kWidth, kVocab, 0.1, offset, one_column}, 25);
            INFO("offset " << offset << (one_column ? " of one column" : " of all columns"));
            CHECK(made.accepts(made.altered([](double sum, double, std::size_t) { return sum; })));
            // One row of each tile is left out or has twice its scale; one of the first tile has the wrong sign.
            CHECK_FALSE(made.accepts(made.altered([](double sum, double row, std::size_t) { return sum - row; })));
            CHECK_FALSE(made.accepts(made.altered([](double sum, double row, std::size_t) { return sum + row; })));
            CHECK_FALSE(made.accepts(
                made.altered([](double sum, double row, std::size_t i) { return i < kWidth ? sum - 2 * row : sum; })));
            CHECK_FALSE(made.accepts(made.altered([](double sum, double, std::size_t) { return -sum; })));
            // One element is off by a thousandth of its size.
            CHECK_FALSE(made.accepts(made.altered([&](double sum, double, std::size_t i) {
                return i == kWidth / 2 ? sum + made.exact[i].size() / 1000 : sum;
            })));
        }
}

TEST_CASE("the tolerance of dgamma is a few times what a long sum that cancels loses") {
    for (const double offset : {100, 1000}) {
        const Simulated made({64, 4, 16384, 2, offset, false}, 23);
        const double allowed = oracle::tolerance(made.head.op, "dgamma").rms;
        CHECK(made.accepts(made.of_kernel));
        CHECK(made.report(made.of_kernel).operands[0].rms > allowed / 5);
    }
}

TEST_CASE("the size of a column's sum is the size of its result, of its terms along w, or of independent rows") {
    const auto size = [](const std::vector<std::array<double, 3>>& rows) {
        oracle::ColumnSum sum;
        for (const auto& [factor, acc, terms] : rows) sum.add(factor, acc, terms);
        return sum.size();
    };
    CHECK(size({{2, 3, 1}, {1, 3, 1}}) == 9);          // results of one sign
    CHECK(size({{1, 0.5, 10}, {1, -0.5, 10}}) == 20);  // terms that have cancelled, along w
    CHECK(size({{3, 1, 10}, {-4, 1, 10}}) == 50);      // the same in rows of both signs: 3-4-5
    CHECK(size({{3, 10, 1}, {-4, 10, 1}}) == 50);
    oracle::ColumnSum sum;
    CHECK(sum.deviation(0) == 0);
    CHECK(std::isinf(sum.deviation(1e-30)));  // of a sum that must be 0
    sum.add(1, 0.5, 10);
    CHECK(sum.deviation(1.5) == 0.1);
    CHECK(std::isnan(sum.deviation(std::nan(""))));
}
