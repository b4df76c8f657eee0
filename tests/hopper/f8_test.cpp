// FP8 conversions on the device: the host's codes, cuda_fp8.h's and the epilogues' agree on all bf16 numbers, on every
// number of either format, on every midpoint, and on their neighbours in fp32.
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/core/f8.h"
#include "tests/hopper/f8_device.h"
#include "tests/hopper/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

template <class F8>
void add_boundaries(std::vector<float>& values) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (int code = 0; code < 127; ++code) {
        F8 number, next;
        number.bits = static_cast<std::uint8_t>(code);
        next.bits = static_cast<std::uint8_t>(code + 1);
        const auto low = static_cast<float>(number), high = static_cast<float>(next);
        if (!std::isfinite(low) || !std::isfinite(high)) continue;
        for (const float at : {low, (low + high) / 2, high})
            for (const float value : {std::nextafter(at, -kInfinity), at, std::nextafter(at, kInfinity)}) {
                values.push_back(value);
                values.push_back(-value);
            }
    }
}

}  // namespace

TEST_CASE("the device rounds to FP8 as the host does, and as cuda_fp8.h says", "[gpu][f8]") {
    if (!has_hopper()) return;
    std::vector<float> values;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) values.push_back(std::bit_cast<float>(bits << 16));
    add_boundaries<F8E4M3>(values);
    add_boundaries<F8E5M2>(values);
    const std::vector<DeviceCodes> codes = convert_on_device(values);
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const int e4m3 = F8E4M3(values[i]).bits, e5m2 = F8E5M2(values[i]).bits;
        bool same = codes[i].ours_e4m3 == e4m3 && codes[i].cuda_e4m3 == e4m3 && codes[i].ours_e5m2 == e5m2 &&
                    codes[i].cuda_e5m2 == e5m2;
        for (const std::uint8_t packed : codes[i].packed) same = same && packed == e4m3;
        if (!same && wrong++ == 0)
            WARN("first difference at " << values[i] << ": host " << e4m3 << " " << e5m2 << ", cuda_fp8.h "
                                        << int{codes[i].cuda_e4m3} << " " << int{codes[i].cuda_e5m2});
    }
    CHECK(wrong == 0);
}
