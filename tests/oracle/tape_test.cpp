// The tape's primitives against the complex-step derivative, which needs no rule of differentiation:
// f'(x) = Im f(x + i h) / h + O(h²), exact to rounding for h = 1e-30.
#include "tests/oracle/tape.h"

#include <cmath>
#include <complex>
#include <span>
#include <vector>

#include "tests/catch.h"

using coda::textbook::Tape;
using coda::textbook::Variable;
using Complex = std::complex<double>;

namespace {

constexpr double kStep = 1e-30;

/// Compares d f / d x_i of a function of two numbers, a template over its scalar type, at a point with positive
/// coordinates.
template <class Function>
void check_derivatives(const Function& f) {
    const double x = 0.7;
    const double y = 1.9;
    Tape tape;
    const Variable tape_x = tape.input(x);
    const Variable tape_y = tape.input(y);
    const Variable output = f(tape_x, tape_y);
    const std::vector<double> adjoints = tape.adjoints(output);

    CHECK(output.value() == Approx(f(Complex(x), Complex(y)).real()).epsilon(1e-15));
    CHECK(adjoints[tape_x.node()] == Approx(f(Complex(x, kStep), Complex(y)).imag() / kStep).epsilon(1e-14));
    CHECK(adjoints[tape_y.node()] == Approx(f(Complex(x), Complex(y, kStep)).imag() / kStep).epsilon(1e-14));
}

}  // namespace

TEST_CASE("each operation of the tape has the derivative of the complex step") {
    SECTION("sum") {
        check_derivatives([](auto x, auto y) { return x + y; });
    }
    SECTION("difference") {
        check_derivatives([](auto x, auto y) { return x - y; });
    }
    SECTION("product") {
        check_derivatives([](auto x, auto y) { return x * y; });
    }
    SECTION("quotient") {
        check_derivatives([](auto x, auto y) { return x / y; });
    }
    SECTION("negation") {
        check_derivatives([](auto x, auto y) { return -x * y; });
    }
    SECTION("exponential") {
        check_derivatives([](auto x, auto y) { return exp(x * y); });
    }
    SECTION("logarithm") {
        check_derivatives([](auto x, auto y) { return log(x * y); });
    }
    SECTION("square root") {
        check_derivatives([](auto x, auto y) { return sqrt(x * y); });
    }
}

TEST_CASE("a dot product differentiates to its other operand, and twice it for a square") {
    Tape tape;
    const std::vector<Variable> a = {tape.input(2), tape.input(-3)};
    const std::vector<Variable> b = {tape.input(5), 7.0};
    const std::span<const Variable> left(a);
    const std::span<const Variable> right(b);

    const Variable product = dot(left, right);
    CHECK(product.value() == 2 * 5 - 3 * 7);
    const std::vector<double> of_product = tape.adjoints(product);
    CHECK(of_product[a[0].node()] == 5);
    CHECK(of_product[a[1].node()] == 7);
    CHECK(of_product[b[0].node()] == 2);

    const std::vector<double> of_square = tape.adjoints(dot(left, left));
    CHECK(of_square[a[0].node()] == 4);
    CHECK(of_square[a[1].node()] == -6);
}

TEST_CASE("derivatives of a value used several times add up; constants and unused inputs have none") {
    Tape tape;
    const Variable x = tape.input(3);
    const Variable unused = tape.input(4);
    const Variable square = x * x;
    const std::vector<double> adjoints = tape.adjoints(square * x + Variable(2) * x);
    CHECK(adjoints[x.node()] == 3 * 9 + 2);
    CHECK(adjoints[unused.node()] == 0);
    CHECK(tape.adjoints(Variable(1) + Variable(2))[x.node()] == 0);
}
