// Where the tolerance of FP8 products comes from (kernels/core/tolerance.h): the rule by which Hopper's tensor cores
// add such products, simulated, and compared with what an H200 measured and with the bounds.
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/core/f8.h"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/oracle/tolerance.h"
#include "tests/catch.h"

using namespace coda;

namespace {

/// 32 terms and the sum so far, each cut off 13 bits below the largest of them.
double add_group(const double* terms, double sum) {
    constexpr int kGroup = 32, kKept = 13;
    double largest = std::fabs(sum);
    for (int i = 0; i < kGroup; ++i) largest = std::fmax(largest, std::fabs(terms[i]));
    if (largest == 0) return 0;
    const double unit = std::ldexp(1.0, std::ilogb(largest) - kKept);
    double units = std::trunc(sum / unit);
    for (int i = 0; i < kGroup; ++i) units += std::trunc(terms[i] / unit);
    return units * unit;
}

/// By how many elements the first promoted sum is longer than the others: in gate_up's dgrad those issued ahead.
constexpr hopper::TileConfig kWidest = hopper::tiles::F8<hopper::tiles::RmsBackwardPromoted, 512>::config;
constexpr std::size_t kAhead = kWidest.ahead() * kWidest.k();

/// The sum of a thread's accumulator, with promotion as in multiply_promoted (kernels/hopper/gemm/consumer.cuh).
double tensor_core_sum(const std::vector<double>& terms, std::size_t promotion, std::size_t ahead) {
    float promoted = 0;
    double sum = 0;
    for (std::size_t k = 0; k < terms.size(); k += 32) {
        sum = add_group(&terms[k], sum);
        if (promotion == 0 || k + 32 <= ahead || (k + 32 - ahead) % promotion != 0) continue;
        promoted += static_cast<float>(sum);
        sum = 0;
    }
    return static_cast<double>(promoted) + sum;
}

using Draw = std::function<double(std::mt19937_64&)>;

double normal(std::mt19937_64& bits) { return std::normal_distribution<double>()(bits); }
/// As Fill::positive of the cases.
double positive(std::mt19937_64& bits) { return 0.5 + std::uniform_real_distribution<double>()(bits); }
double log_normal(std::mt19937_64& bits) { return normal(bits) * std::exp(2 * normal(bits)); }
/// One in a thousand is 100 times as large, as an outlier of SwiGLU.
double with_spikes(std::mt19937_64& bits) { return normal(bits) * (bits() % 1000 == 0 ? 100 : 1); }

struct Error {
    double rms, bias;  // of the sums, relative to their RMS and to the sum of their magnitudes
};

/// The error of many sums over k of products of two factors in e4m3, whose RMS is near 4.
Error error_of(std::size_t k, std::size_t promotion, const Draw& a, const Draw& b, int sums, std::size_t ahead = 0) {
    std::mt19937_64 bits(5);
    double difference = 0, square = 0, bias = 0, magnitude = 0;
    std::vector<double> terms(k);
    for (int row = 0; row < sums; ++row) {
        double exact = 0;
        for (double& term : terms) {
            const F8E4M3 left(static_cast<float>(4 * a(bits))), right(static_cast<float>(4 * b(bits)));
            term = static_cast<double>(left) * static_cast<double>(right);
            exact += term;
        }
        const double off = tensor_core_sum(terms, promotion, ahead) - exact;
        difference += off * off;
        square += exact * exact;
        bias += exact < 0 ? -off : off;
        magnitude += std::fabs(exact);
    }
    return {std::sqrt(difference / square), std::fabs(bias) / magnitude};
}

constexpr std::int64_t kLong = 16384;  // K of gate_up's dgrad in a 1B model

}  // namespace

TEST_CASE("the rule of Hopper's FP8 sums gives the losses that an H200 measured over terms of one sign") {
    // The last is what "promotion keeps a long FP8 sum unbiased" (tests/hopper/f8_programs_test.cpp) expects, within
    // the same tenth. The others were measured with weight gradients that promoted never, or every 512 tokens.
    CHECK(error_of(32768, 0, positive, positive, 4).bias == Approx(0.493).epsilon(0.1));
    CHECK(error_of(32768, 512, positive, positive, 4).bias == Approx(4.1e-3).epsilon(0.1));
    CHECK(error_of(32768, 256, positive, positive, 4).bias == Approx(9.4e-4).epsilon(0.1));
}

TEST_CASE("promoted FP8 sums over features are within their bound, whatever K and the factors are") {
    for (const std::int64_t promotion : {256, 512}) {
        const double bound = f8_product_error(kLong, promotion, SumOver::features);
        const auto interval = static_cast<std::size_t>(promotion);
        const auto check = [&](std::size_t k, const char* what, const Draw& a) {
            for (const std::size_t ahead : {std::size_t{0}, kAhead}) {
                if (ahead > 0 && promotion != kWidest.promotion) continue;
                const double rms = error_of(k, interval, a, normal, 100, ahead).rms;
                INFO(what << ", K " << k << ", promotion " << promotion << ", ahead " << ahead << ": " << rms << " of "
                          << bound);
                CHECK(rms < bound);
            }
        };
        for (const std::size_t k : {9216, 16384, 28672}) check(k, "normal", normal);
        check(kLong, "log-normal", log_normal);
        check(kLong, "with spikes", with_spikes);
        // And the bound is no more than a few times what occurs.
        CHECK(error_of(kLong, interval, with_spikes, normal, 100).rms > bound / 4);
    }
}

TEST_CASE("the oracle names a long FP8 dgrad that lacks its promotion") {
    LinearRmsBackward op;
    op.a.dtype = op.w.dtype = DType::f8e4m3;
    op.a.cols = kLong;
    op.dx.buffer = op.dgamma.buffer = 0;
    op.dx.dtype = DType::bf16;
    op.dgamma.dtype = DType::f32;
    constexpr double kBf16 = 1.7e-3;  // RMS of rounding dx, where mantissas are spread evenly
    const auto judged = [&](double product) {
        const double dx = std::hypot(product, kBf16);
        return oracle::within_tolerance(op, {.operands = {{"dx", dx, dx}, {"dgamma", product, product}}});
    };
    CHECK(judged(error_of(kLong, 512, normal, normal, 200, kAhead).rms));
    const double without = error_of(kLong, 0, normal, normal, 200).rms;
    CHECK_FALSE(judged(without));
    // A bound for sums over tokens, whose terms may have one sign, would let it pass.
    CHECK(without < f8_product_error(kLong, 512, SumOver::tokens));
}
