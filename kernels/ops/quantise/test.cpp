// QuantiseF8 against its formula in plain loops, code by code.
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

struct Form {
    std::int64_t tokens, width;
    bool rstd, rows, columns, amax;
    ColumnOrder order = ColumnOrder::paired;
    DType format = DType::f8e4m3;
};

QuantiseF8 made(Buffers& buffers, DType storage, const Form& form, double scale = 16) {
    const DType compute = compute_of(storage);
    QuantiseF8 op;
    op.x = buffers.random(storage, form.tokens, form.width, -40, 40, form.width + 3);
    if (form.rstd) op.rstd = buffers.random(compute, 1, form.tokens, 0.1, 1.1);
    op.codes.scale = buffers.scalar(compute, scale);
    if (form.rows) op.codes.rows = buffers.matrix(form.format, form.tokens, form.width, form.width + 5);
    if (form.columns) {
        op.codes.columns = buffers.matrix(form.format, form.width, form.tokens, form.tokens + 7);
        op.codes.columns.order = form.order;
    }
    if (form.amax) op.codes.amax = buffers.scalar(compute, 0.5);
    return op;
}

/// The code nearest to `value`, of two equally near ones the even one, found by trying all finite ones.
int nearest_code(double value, DType format = DType::f8e4m3) {
    const double magnitude = std::fabs(value);
    const int last = format == DType::f8e5m2 ? 0x7b : 0x7e;
    int best = 0;
    for (int code = 0; code <= last; ++code) {
        const auto distance = [&](int of) {
            return std::fabs(with_f8(format,
                                     [&]<class F8>(F8) {
                                         return static_cast<double>(std::bit_cast<F8>(static_cast<std::uint8_t>(of)));
                                     }) -
                             magnitude);
        };
        if (distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0)) best = code;
    }
    return best | (std::signbit(value) ? 0x80 : 0);
}

int code_at(const Buffers& buffers, const View& view, std::int64_t row, std::int64_t column) {
    View byte = view;
    byte.dtype = DType::u8;
    return static_cast<int>(buffers.get(byte, row, column));
}

/// x rstd, rounded to the compute type as the op rounds it.
double value_at(const Buffers& buffers, const QuantiseF8& op, std::int64_t row, std::int64_t column) {
    const double value = buffers.get(op.x, row, column) * (op.rstd ? buffers.get(op.rstd, 0, row) : 1);
    return op.codes.scale.dtype == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
}

}  // namespace

TEST_CASE("QuantiseF8 rounds an element once, writes its code by rows and transposed, and raises amax") {
    const Form forms[] = {
        {48, 32, true, true, true, true},   {48, 32, false, true, true, true, ColumnOrder::natural},
        {16, 16, true, false, true, false}, {48, 32, true, true, true, true, ColumnOrder::paired, DType::f8e5m2},
        {21, 48, true, true, false, true},  {1, 16, false, false, false, true}};
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        for (const Form& form : forms)
            for (const double size : {0x1p-6, 4.0, 64.0}) {  // to denormal codes; as x̂; many saturate
                const bool wide = form.format == DType::f8e5m2;
                const double scale = !wide ? size : size < 1 ? 0x1p-14 : 128 * size;
                Buffers buffers;
                const QuantiseF8 op = made(buffers, storage, form, scale);
                cpu::run(op, buffers.memory());
                double largest = 0.5;
                std::int64_t saturated = 0;
                for (std::int64_t row = 0; row < form.tokens; ++row)
                    for (std::int64_t column = 0; column < form.width; ++column) {
                        const double value = value_at(buffers, op, row, column);
                        const int code = nearest_code(scale * value, form.format);
                        const std::int64_t place = form.order == ColumnOrder::paired ? paired_place(row) : row;
                        if (form.rows) REQUIRE(code_at(buffers, op.codes.rows, row, column) == code);
                        if (form.columns) REQUIRE(code_at(buffers, op.codes.columns, column, place) == code);
                        largest = std::fmax(largest, std::fabs(value));
                        saturated += scale * std::fabs(value) > (wide ? 61440 : 464) ? 1 : 0;
                    }
                if (form.amax) REQUIRE(buffers.get(op.codes.amax, 0, 0) == largest);
                if (size == 64) REQUIRE(saturated > 0);
                if (form.rows) REQUIRE(buffers.gaps_untouched(op.codes.rows));
                if (form.columns) REQUIRE(buffers.gaps_untouched(op.codes.columns));
                if (!form.amax) continue;
                buffers.set(op.codes.amax, 0, 0, 64);  // a larger one stays
                cpu::run(op, buffers.memory());
                REQUIRE(buffers.get(op.codes.amax, 0, 0) == 64);
            }
}

TEST_CASE("QuantiseF8 in double rounds once: next to a midpoint of two codes, by less than a float shows") {
    Buffers buffers;
    const QuantiseF8 op = made(buffers, DType::f64, {16, 16, false, true, false, false}, 1);
    const double cases[] = {17 + 0x1p-40,        17 - 0x1p-40,  17,    -17 - 0x1p-40, 19 - 0x1p-40, 0x1p-10,
                            0x1.0p-10 + 0x1p-60, 464 + 0x1p-40, 1e300, 0x1p-200,      -0x1p-200,    0};
    for (std::int64_t i = 0; i < std::ssize(cases); ++i) buffers.set(op.x, 0, i, cases[i]);
    cpu::run(op, buffers.memory());
    for (std::int64_t i = 0; i < std::ssize(cases); ++i) {
        INFO("of " << cases[i]);
        CHECK(code_at(buffers, op.codes.rows, 0, i) == nearest_code(cases[i]));
    }
    const DType wide = DType::f8e5m2;
    const QuantiseF8 other =
        made(buffers, DType::f64, {16, 16, false, true, false, false, ColumnOrder::paired, wide}, 1);
    const double of_wide[] = {18 + 0x1p-40, 18 - 0x1p-40, 18, 0x1p-17 + 0x1p-60, 0x1p-17, 61440 + 0x1p-30, 1e9};
    for (std::int64_t i = 0; i < std::ssize(of_wide); ++i) buffers.set(other.x, 0, i, of_wide[i]);
    cpu::run(other, buffers.memory());
    for (std::int64_t i = 0; i < std::ssize(of_wide); ++i) {
        INFO("of " << of_wide[i]);
        CHECK(code_at(buffers, other.codes.rows, 0, i) == nearest_code(of_wide[i], wide));
    }
}

TEST_CASE("QuantiseF8 of what is not finite: the largest number, the code of NaN, and amax says so of infinities") {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        Buffers buffers;
        const QuantiseF8 op = made(buffers, storage, {16, 16, false, true, true, true});
        buffers.set(op.x, 0, 0, 41);  // before the NaN, and larger than all behind it
        buffers.set(op.x, 3, 5, std::numeric_limits<double>::quiet_NaN());
        cpu::run(op, buffers.memory());
        CHECK(code_at(buffers, op.codes.rows, 3, 5) == 0x7f);
        CHECK(code_at(buffers, op.codes.columns, 5, paired_place(3)) == 0x7f);
        CHECK(buffers.get(op.codes.amax, 0, 0) == 41);
        buffers.set(op.x, 3, 6, -kInfinity);
        cpu::run(op, buffers.memory());
        CHECK(code_at(buffers, op.codes.rows, 3, 6) == 0xfe);
        CHECK(buffers.get(op.codes.amax, 0, 0) == kInfinity);
    }
}

TEST_CASE("QuantiseF8 gives the same bits for any number of threads") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        require_same_bits_for_any_thread_count([&](Buffers& b) {
            return made(b, storage, {112, 64, true, true, true, true});
        });
}

TEST_CASE("QuantiseF8 refuses what its copies cannot hold") {
    const auto run = [](const Form& form, const auto& change) {
        Buffers buffers;
        QuantiseF8 op = made(buffers, DType::bf16, form);
        change(op, buffers);
        cpu::run(op, buffers.memory());
    };
    const auto nothing = [](QuantiseF8&, Buffers&) {};
    CHECK_THROWS_WITH(run({24, 32, false, true, true, true}, nothing),
                      Catch::Contains("QuantiseF8: M is 24, not a multiple of 16"));
    CHECK_THROWS_WITH(run({32, 24, false, true, false, true}, nothing),
                      Catch::Contains("QuantiseF8: N is 24, not a multiple of 16"));
    CHECK_THROWS_WITH(run({32, 16, false, false, false, false}, nothing), Catch::Contains("it would write nothing"));
    CHECK_THROWS_WITH(run({32, 16, false, true, true, true},
                          [](QuantiseF8& op, Buffers&) { std::swap(op.codes.columns.rows, op.codes.columns.cols); }),
                      Catch::Contains("operand columns is (32, 16), expected (16, 32)"));
    CHECK_THROWS_WITH(run({32, 16, false, true, true, true},
                          [](QuantiseF8& op, Buffers&) { op.codes.columns.dtype = DType::f8e5m2; }),
                      Catch::Contains("operand columns is f8e5m2, expected f8e4m3"));
    CHECK_THROWS_WITH(
        run({32, 16, false, true, true, true}, [](QuantiseF8& op, Buffers&) { op.codes.rows.dtype = DType::u8; }),
        Catch::Contains("its copies are u8, expected f8e4m3 or f8e5m2"));
    CHECK_THROWS_WITH(run({32, 16, false, true, true, true},
                          [](QuantiseF8& op, Buffers&) { op.codes.rows.order = ColumnOrder::paired; }),
                      Catch::Contains("operand rows has its columns in pairs of each 16, expected natural order"));
}
