// The oracle's tolerances, how it cuts a check into bands, and its reports: everything that needs no GPU.
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/core/factors.h"
#include "kernels/oracle/bands.h"
#include "kernels/oracle/tolerance.h"
#include "tests/catch.h"

using namespace coda;
using oracle::OperandError;

namespace {

template <class Shape, Access access>
constexpr bool is_matrix(const Operand<Shape, access>&) {
    return std::is_same_v<Shape, Matrix>;
}
template <class Shape>
constexpr bool is_matrix(const Accumulate<Shape>&) {
    return std::is_same_v<Shape, Matrix>;
}

/// An op with all its operands, 2048 x 2048: matrices of `storage`, indices and flags of i32, the rest fp32.
template <class T>
T complete_op(DType storage) {
    T op;
    visit_operands(op, [&](const std::string& name, auto& operand) {
        View& view = operand;
        view.buffer = 0;
        view.rows = view.cols = view.ld = 2048;
        const bool index = name == "tokens" || name == "targets" || name == "positions" || name == "skip" ||
                           name == "step" || name == "doc_start" || name == "next_tile";
        view.dtype = is_matrix(operand) ? storage : name == "scratch" ? DType::u8 : DType::f32;
        if (index) view.dtype = DType::i32;
    });
    return op;
}

template <class Fn, std::size_t... index>
void for_each_op(Fn&& fn, std::index_sequence<index...>) {
    (fn(std::variant_alternative_t<index, Op>()), ...);
}
template <class Fn>
void for_each_op(Fn&& fn) {
    for_each_op(fn, std::make_index_sequence<std::variant_size_v<Op>>());
}

}  // namespace

TEST_CASE("bands cover all rows in order and fit") {
    for (const std::int64_t rows : {1, 7, 64, 100, 8192})
        for (const std::int64_t unit : {1, 8, 64})
            for (const std::int64_t budget : {6400, 8000, 819'200, 1 << 30}) {
                const std::int64_t row_bytes = 100;
                const auto cut = oracle::bands(rows, row_bytes, unit, budget);
                std::int64_t next = 0;
                for (std::size_t i = 0; i < cut.size(); ++i) {
                    CHECK(cut[i].first == next);
                    CHECK(cut[i].rows > 0);
                    CHECK(cut[i].rows * row_bytes <= budget);
                    if (i + 1 < cut.size()) CHECK(cut[i].rows % unit == 0);
                    next += cut[i].rows;
                }
                CHECK(next == rows);
                if (rows * row_bytes <= budget) CHECK(cut.size() == 1);
            }
    CHECK(oracle::bands(0, 100, 8, 0).empty());
}

TEST_CASE("a work space too small for a unit of rows is an error with both sizes") {
    CHECK_THROWS_WITH(oracle::bands(100, 1000, 64, 63'999),
                      Catch::Contains("64 rows of 1000 bytes") && Catch::Contains("63999 bytes"));
    CHECK_THROWS_WITH(oracle::bands(5, 1000, 64, 4000), Catch::Contains("5 rows of 1000 bytes"));
    CHECK_THROWS_WITH(oracle::bands(5, 1000, 1, -8), Catch::Contains("-8 bytes"));
    CHECK(oracle::bands(5, 1000, 64, 5000).size() == 1);
}

TEST_CASE("FP8 products have the tolerance of their accumulators: of K, or of the interval of promotion") {
    LinearRmsBackward dgrad;
    dgrad.a.dtype = dgrad.w.dtype = DType::f8e4m3;
    dgrad.a.buffer = dgrad.w.buffer = dgrad.dx.buffer = dgrad.dgamma.buffer = 0;
    dgrad.dx.dtype = DType::bf16;
    dgrad.dgamma.dtype = DType::f32;
    const auto rms = [](const Op& op, const char* operand) { return oracle::tolerance(op, operand).rms; };
    dgrad.a.cols = 2048;
    CHECK(rms(dgrad, "dgamma") == 1.5e-3);
    dgrad.a.cols = 8192;
    CHECK(rms(dgrad, "dgamma") == 3e-3);
    dgrad.a.cols = 16384;
    CHECK(rms(dgrad, "dgamma") == 1e-3 * std::sqrt(2.0));
    CHECK(rms(dgrad, "dx") == 1e-3 * std::sqrt(2.0) + 2.3e-3);
    WeightGradient gradient;
    gradient.dy.dtype = gradient.x.dtype = DType::f8e4m3;
    gradient.dy.buffer = gradient.x.buffer = gradient.grad.buffer = 0;
    gradient.dy.rows = 2048;
    gradient.dy.cols = 32768;
    CHECK(rms(gradient, "grad") == 4e-3);  // terms of one sign, over tokens
    LinearSwigluBackward swiglu;
    swiglu.a.dtype = DType::f8e4m3;
    swiglu.dz.codes.amax.buffer = swiglu.dot.buffer = 0;
    swiglu.dz.codes.amax.dtype = swiglu.dot.dtype = DType::f32;
    swiglu.a.cols = 2048;
    CHECK(rms(swiglu, "dot") == 1.5e-3);
    CHECK(rms(swiglu, "dz_amax") == 6e-3);  // one element's, not an RMS
}

TEST_CASE("every operand that an op writes has a tolerance, and no other") {
    for_each_op([]<class T>(T) {
        for (const DType storage : {DType::bf16, DType::f32, DType::f8e4m3}) {
            if (is_f8(storage) && !takes_f8<T>) continue;
            const T op = complete_op<T>(storage);
            for_each_operand(op, [&](const char* operand, const View& view, Access access) {
                INFO(T::name << " " << operand << " " << name_of(view.dtype));
                if (access == Access::in || view.dtype == DType::u8) {
                    CHECK_THROWS_WITH(oracle::tolerance(op, operand),
                                      Catch::Contains(T::name) && Catch::Contains(operand));
                    return;
                }
                const Tolerance allowed = oracle::tolerance(op, operand);
                CHECK(allowed.largest >= allowed.rms);
                // The metric's own scale: a result of the wrong sign is off by 2. Rounded to FP8, an element moves by
                // up to 2^-4 of itself.
                CHECK(allowed.largest <= (is_f8(storage) ? 0.07 : 0.05));
                const bool exact = allowed.rms == 0;
                if (view.dtype == DType::i32) CHECK(exact);
                // Stored in bf16 from fp32, an element moves by up to 2^-8 of itself.
                if (view.dtype == DType::bf16 && !exact) CHECK(allowed.largest > 0x1p-8);
                if (view.dtype == DType::f32 && !exact) CHECK(allowed.rms >= 0x1p-24);
            });
        }
    });
}

TEST_CASE("parts of an operand have its tolerance") {
    const auto attention = complete_op<AttentionBackward>(DType::bf16);
    for (const char* part : {"dq", "dk", "dv"})
        CHECK(oracle::tolerance(attention, part).rms == oracle::tolerance(attention, "dqkv").rms);
    CHECK_THROWS_WITH(oracle::tolerance(complete_op<Attention>(DType::bf16), "dq"),
                      Catch::Contains("Attention") && Catch::Contains("dq"));
}

TEST_CASE("moments that are rounded stochastically may differ by one step of bf16, but not everywhere") {
    auto op = complete_op<AdamW>(DType::bf16);
    const Tolerance full = oracle::tolerance(op, "m");
    op.m.dtype = DType::bf16;
    const Tolerance rounded = oracle::tolerance(op, "m");
    CHECK(full.largest < 0x1p-18);
    CHECK(rounded.largest > 0x1p-7);
    CHECK(rounded.rms < 0x1p-10);
}

TEST_CASE("the tolerance of an fp32 GEMM grows with its terms") {
    auto op = complete_op<WeightGradient>(DType::f32);
    op.dy.rows = 512;
    const double few = oracle::tolerance(op, "grad").rms;
    op.dy.rows = 32768;
    CHECK(oracle::tolerance(op, "grad").rms > 5 * few);
}

TEST_CASE("a report is within tolerance when all of it is") {
    auto op = complete_op<LinearRmsBackward>(DType::bf16);
    op.dgamma.dtype = DType::f32;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const auto line = [&](const std::vector<OperandError>& operands) {
        const oracle::Report report{operands};
        const std::string text = oracle::line_of("layer 3 qkv_dgrad", op, report);
        CHECK((text.find("ok") != std::string::npos) == oracle::within_tolerance(op, report));
        return text;
    };
    CHECK(line({{"dx", 1.7e-3, 2e-3}, {"n", 1.8e-3, 2e-3}, {"dgamma", 2e-7, 1e-6}}) ==
          "layer 3 qkv_dgrad LinearRmsBackward  dx 1.7e-03  n 1.8e-03  (tolerance 4.0e-03)  dgamma 2.0e-07  "
          "(tolerance 7.1e-05)  ok");
    CHECK(line({{"dx", 1e-6, 0.3}, {"dgamma", 1e-3, 1e-3}}) ==
          "layer 3 qkv_dgrad LinearRmsBackward  dx 1.0e-06  (tolerance 4.0e-03)  dgamma 1.0e-03  (tolerance 7.1e-05)  "
          "BEYOND: dx (largest 3.0e-01 of 5.0e-03), dgamma (largest 1.0e-03 of 2.8e-04)");
    CHECK(line({{"dx", kInfinity, kInfinity}}).find("BEYOND: dx (largest inf") != std::string::npos);
    CHECK(line({{"dx", std::nan(""), 0}}).find("BEYOND: dx") != std::string::npos);
    CHECK(line({}) == "layer 3 qkv_dgrad LinearRmsBackward  BEYOND: nothing was compared");
}
