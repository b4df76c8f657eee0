// Conversions of the two FP8 types, for all codes and around every rounding boundary. The reference knows only the
// format's definition: a list of its finite numbers, of which the nearest is taken, the one of even code where two are.
#include "kernels/core/f8.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/catch.h"

using namespace coda;

namespace {

struct Format {
    int mantissa, bias, codes;  // codes of finite numbers that are not negative
};
constexpr Format kE4M3{3, 7, 0x7f}, kE5M2{2, 15, 0x7c};

double value_of(const Format& format, int code) {
    const int field = code >> format.mantissa;
    const double fraction = (code & ((1 << format.mantissa) - 1)) / std::ldexp(1.0, format.mantissa);
    return field == 0 ? std::ldexp(fraction, 1 - format.bias) : std::ldexp(1 + fraction, field - format.bias);
}

int nearest(const Format& format, double magnitude) {
    int best = 0;
    for (int code = 1; code < format.codes; ++code) {
        const double now = std::fabs(value_of(format, code) - magnitude);
        const double before = std::fabs(value_of(format, best) - magnitude);
        if (now < before || (now == before && code % 2 == 0)) best = code;
    }
    return best;
}

template <class F8>
int code_of(float value) {
    return F8(value).bits;
}

template <class F8>
std::int64_t wrong_codes(const Format& format) {
    std::int64_t wrong = 0;
    for (int code = 0; code < 256; ++code) {
        F8 number;
        number.bits = static_cast<std::uint8_t>(code);
        const auto value = static_cast<float>(number);
        const int magnitude = code & 0x7f;
        if (magnitude < format.codes) {
            const double expected = (code & 0x80 ? -1 : 1) * value_of(format, magnitude);
            wrong += static_cast<double>(value) != expected || std::signbit(value) != (code >= 0x80) ||
                     code_of<F8>(value) != code;
        } else if (magnitude == 0x7c) {  // only of e5m2; satfinite takes it to the largest number
            wrong += !std::isinf(value) || code_of<F8>(value) != code - 1;
        } else {
            wrong += !std::isnan(value) || code_of<F8>(value) != 0x7f;
        }
    }
    return wrong;
}

template <class F8>
bool right(const Format& format, float value) {
    if (std::isnan(value)) return code_of<F8>(value) == 0x7f;
    const double magnitude = std::fabs(static_cast<double>(value));
    const int largest = format.codes - 1;
    const int expected = magnitude >= value_of(format, largest) ? largest : nearest(format, magnitude);
    return code_of<F8>(value) == expected + (std::signbit(value) ? 0x80 : 0);
}

template <class F8>
std::int64_t wrong_bf16(const Format& format) {
    std::int64_t wrong = 0;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) wrong += !right<F8>(format, std::bit_cast<float>(bits << 16));
    return wrong;
}

/// The midpoint of every two neighbours, its neighbours in fp32, and the numbers themselves likewise.
template <class F8>
std::int64_t wrong_boundaries(const Format& format) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::int64_t wrong = 0;
    for (int code = 0; code + 1 < format.codes; ++code)
        for (const double at : {value_of(format, code), (value_of(format, code) + value_of(format, code + 1)) / 2}) {
            const auto exact = static_cast<float>(at);
            REQUIRE(static_cast<double>(exact) == at);
            for (const float value : {std::nextafter(exact, -kInfinity), exact, std::nextafter(exact, kInfinity)})
                wrong += !right<F8>(format, value) + !right<F8>(format, -value);
        }
    for (const float value : {std::numeric_limits<float>::max(), kInfinity, std::numeric_limits<float>::denorm_min()})
        wrong += !right<F8>(format, value) + !right<F8>(format, -value);
    return wrong;
}

}  // namespace

TEST_CASE("FP8 codes have the values of their definition, and convert back") {
    CHECK(wrong_codes<F8E4M3>(kE4M3) == 0);
    CHECK(wrong_codes<F8E5M2>(kE5M2) == 0);
    CHECK(F8E4M3::largest() == 448.0f);
    CHECK(F8E5M2::largest() == 57344.0f);
}

TEST_CASE("FP8 rounds to nearest, ties to even, and saturates: all bf16 numbers and every boundary") {
    CHECK(wrong_bf16<F8E4M3>(kE4M3) == 0);
    CHECK(wrong_bf16<F8E5M2>(kE5M2) == 0);
    CHECK(wrong_boundaries<F8E4M3>(kE4M3) == 0);
    CHECK(wrong_boundaries<F8E5M2>(kE5M2) == 0);
}
