#include "kernels/cpu/exponential.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace {

// Largest |exponential - exp 2^-shift| in units of the last place of T over n + 1 points of [low, high].
template <class T, int shift = 0>
double worst_ulps(double low, double high, int n) {
    double worst = 0;
    for (int i = 0; i <= n; ++i) {
        const T x = static_cast<T>(low + (high - low) * i / n);
        const long double exact = std::ldexp(std::exp(static_cast<long double>(x)), -shift);
        const T nearest = static_cast<T>(exact);
        const long double ulp = std::nextafter(nearest, std::numeric_limits<T>::infinity()) - nearest;
        const long double error = std::fabs(static_cast<long double>(coda::cpu::exponential<T, shift>(x)) - exact);
        worst = std::max(worst, static_cast<double>(error / ulp));
    }
    return worst;
}

template <class T>
void check_limits() {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    CHECK(coda::cpu::exponential(T(0)) == T(1));
    CHECK(coda::cpu::exponential(-infinity) == T(0));
    CHECK(coda::cpu::exponential(std::numeric_limits<T>::lowest()) == T(0));
    CHECK(coda::cpu::exponential(infinity) == infinity);
    CHECK(coda::cpu::exponential(std::numeric_limits<T>::max()) == infinity);
    CHECK(std::isnan(coda::cpu::exponential(std::numeric_limits<T>::quiet_NaN())));
    CHECK(coda::cpu::exponential<T, 58>(T(0)) == T(0x1p-58));
    CHECK(coda::cpu::exponential<T, 58>(std::numeric_limits<T>::lowest()) == T(0));
    CHECK(coda::cpu::exponential<T, 58>(std::numeric_limits<T>::max()) == infinity);
    CHECK(std::isnan(coda::cpu::exponential<T, 58>(std::numeric_limits<T>::quiet_NaN())));
    CHECK(coda::cpu::logistic(T(0)) == T(0.5));
    CHECK(coda::cpu::logistic(-std::numeric_limits<T>::max()) == T(0));
    CHECK(coda::cpu::logistic(std::numeric_limits<T>::max()) == T(1));
}

}  // namespace

TEST_CASE("exponential agrees with the library to two units in the last place") {
    CHECK(worst_ulps<float>(-87, 88.7, 200003) < 2);
    CHECK(worst_ulps<float>(-104, -87, 20011) < 2);  // subnormal results
    CHECK(worst_ulps<double>(-708, 709.7, 200003) < 2);
    CHECK(worst_ulps<double>(-746, -708, 20011) < 2);
    CHECK(worst_ulps<float, 58>(-47, 128.9, 200003) < 2);
    CHECK(worst_ulps<float, 58>(-63.8, -47, 20011) < 2);
    CHECK(worst_ulps<double, 58>(-667, 749.9, 200003) < 2);
}

TEST_CASE("exponential at its limits") {
    check_limits<float>();
    check_limits<double>();
}
