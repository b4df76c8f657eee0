#include "src/train/learning_rate.h"

#include <cmath>
#include <numbers>

#include "tests/catch.h"

using namespace coda;

namespace {

double rate(LrScheduleType type, std::int64_t step, std::int64_t warmup, std::optional<std::int64_t> decay = {}) {
    OptimizerConfig optimizer;
    optimizer.learning_rate = 2.0;
    return learning_rate(optimizer, {.type = type, .warmup_steps = warmup, .min_lr_ratio = 0.1, .decay_steps = decay},
                         100, step);
}

}  // namespace

TEST_CASE("warm-up is linear from the first step and ends at the peak, for every schedule") {
    for (const auto type :
         {LrScheduleType::cosine, LrScheduleType::linear, LrScheduleType::constant, LrScheduleType::wsd}) {
        CHECK(rate(type, 1, 10) == Approx(0.2));
        CHECK(rate(type, 5, 10) == Approx(1.0));
        CHECK(rate(type, 10, 10) == Approx(2.0));
    }
}

TEST_CASE("cosine falls from the peak to the minimum at the last step") {
    CHECK(rate(LrScheduleType::cosine, 55, 10) == Approx(2.0 * (0.1 + 0.9 * 0.5)));  // half way
    CHECK(rate(LrScheduleType::cosine, 32, 10, 22) == Approx(0.2));                  // decay_steps after warm-up
    CHECK(rate(LrScheduleType::cosine, 25, 10) ==
          Approx(2.0 * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * 15 / 90)))));
    CHECK(rate(LrScheduleType::cosine, 100, 10) == Approx(0.2));
}

TEST_CASE("linear, constant") {
    CHECK(rate(LrScheduleType::linear, 55, 10) == Approx(2.0 * 0.55));
    CHECK(rate(LrScheduleType::linear, 100, 0) == Approx(0.2));
    CHECK(rate(LrScheduleType::constant, 100, 10) == 2.0);
}

TEST_CASE("wsd holds the peak, then decays linearly over its last steps") {
    CHECK(rate(LrScheduleType::wsd, 80, 10) == 2.0);  // the default decay is the last 20 of 100 steps
    CHECK(rate(LrScheduleType::wsd, 90, 10) == Approx(2.0 * 0.55));
    CHECK(rate(LrScheduleType::wsd, 100, 10) == Approx(0.2));
    CHECK(rate(LrScheduleType::wsd, 60, 10, 40) == 2.0);
    CHECK(rate(LrScheduleType::wsd, 80, 10, 40) == Approx(2.0 * 0.55));
}

TEST_CASE("without warm-up the first step of a decaying schedule is below the peak and positive") {
    CHECK(rate(LrScheduleType::cosine, 1, 0) < 2.0);
    CHECK(rate(LrScheduleType::cosine, 1, 0) > 1.99);
}
