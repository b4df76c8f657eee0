// The watch over loss and gradient norm against its definition: median and spread of the steps up to two before.
#include "src/train/spike_watch.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/catch.h"
#include "tests/io/scratch_folder.h"

using namespace coda;
using Catch::Contains;

namespace {

struct Result {
    double loss, norm;
};

/// Losses that fall and norms of a log-normal distribution, as fp32 numbers; `spikes` are 30 times the usual norm.
std::vector<Result> run_of(std::size_t steps, const std::vector<std::size_t>& spikes = {}) {
    std::mt19937_64 generator(7);
    std::normal_distribution<double> normal;
    std::vector<Result> results;
    for (std::size_t i = 0; i < steps; ++i) {
        const double spike = std::count(spikes.begin(), spikes.end(), i + 1) > 0 ? 30 : 1;
        results.push_back({static_cast<float>(3 + 2 / (1 + 0.02 * static_cast<double>(i)) + 0.05 * normal(generator)),
                           static_cast<float>(spike * std::exp(0.2 * normal(generator)))});
    }
    return results;
}

double sorted_median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// Median and spread of the latest 128 results before the one before `step`.
struct Definition {
    double median, spread;

    template <class Value>
    Definition(const std::vector<Result>& results, std::size_t step, double least, const Value& value) {
        std::vector<double> values;
        const std::size_t end = step - 2;
        for (std::size_t i = end > 128 ? end - 128 : 0; i < end; ++i) values.push_back(value(results[i]));
        median = sorted_median(values);
        for (double& each : values) each = std::abs(each - median);
        // The third quartile of the standard normal distribution.
        spread = std::max(least, sorted_median(values) / 0.674489750196082);
    }
};

double loss_of(const Result& result) { return result.loss; }
double log_norm_of(const Result& result) { return std::log(result.norm); }

}  // namespace

// About ten operations on numbers of moderate size.
TEST_CASE("a step's z is its distance from the median of the steps up to two before, in spreads") {
    const std::vector<Result> results = run_of(400, {90, 91, 200});
    SpikeWatch watch(5);
    for (std::size_t step = 1; step <= results.size(); ++step) {
        const auto [loss, norm] = results[step - 1];
        const auto number = static_cast<std::int64_t>(step);
        const double limit = watch.drop_above(number);
        const SpikeScores scores = watch.observe(number, loss, norm);
        INFO("step " << step);
        if (step < 34) {  // 32 steps, and the one before this
            REQUIRE(std::isnan(scores.loss));
            REQUIRE(std::isnan(scores.norm));
            REQUIRE(std::isinf(limit));
            REQUIRE_FALSE(scores.spike());
            continue;
        }
        const Definition losses(results, step, 1e-3, loss_of), norms(results, step, 1e-2, log_norm_of);
        REQUIRE(scores.loss == Approx((loss - losses.median) / losses.spread).margin(1e-11));
        REQUIRE(scores.norm == Approx((std::log(norm) - norms.median) / norms.spread).margin(1e-11));
        REQUIRE(scores.usual_loss == losses.median);
        REQUIRE(scores.usual_norm == Approx(std::exp(norms.median)).epsilon(1e-13));
        REQUIRE(limit == Approx(std::exp(norms.median + 5 * norms.spread)).epsilon(1e-12));
        REQUIRE((norm > limit) == (scores.norm > 5));
        REQUIRE(scores.spike() == (step == 90 || step == 91 || step == 200));
    }
}

TEST_CASE("a loss far above the usual is a spike as well, one far below is none") {
    SpikeWatch watch;
    const std::vector<Result> results = run_of(100);
    for (std::size_t i = 0; i < results.size(); ++i)
        watch.observe(static_cast<std::int64_t>(i + 1), results[i].loss, results[i].norm);
    SpikeWatch high = watch, low = watch;
    CHECK(high.observe(101, 9, 1).spike());
    const SpikeScores below = low.observe(101, 0.1, 1e-3);
    CHECK(below.loss < -6);
    CHECK(below.norm < -6);
    CHECK_FALSE(below.spike());
    CHECK(std::isinf(watch.drop_above(101)));  // skip_spikes is off
}

// On the GPU the host asks for the limit of step t before it has seen step t - 1, on the CPU after it.
TEST_CASE("the limit of a step does not depend on whether the step before it was seen") {
    const std::vector<Result> results = run_of(300, {150});
    SpikeWatch ahead(4), behind(4);
    for (std::size_t step = 1; step <= results.size(); ++step) {
        const auto number = static_cast<std::int64_t>(step);
        const double limit = ahead.drop_above(number);
        if (step > 1) ahead.observe(number - 1, results[step - 2].loss, results[step - 2].norm);
        REQUIRE(ahead.drop_above(number) == limit);
        REQUIRE(behind.drop_above(number) == limit);
        behind.observe(number, results[step - 1].loss, results[step - 1].norm);
    }
}

TEST_CASE("what a checkpoint keeps of the watch continues it to the bit") {
    const std::vector<Result> results = run_of(400, {100, 220});
    const auto observe = [&](SpikeWatch& watch, std::size_t step) {
        return watch.observe(static_cast<std::int64_t>(step), results[step - 1].loss, results[step - 1].norm);
    };
    SpikeWatch whole(6);
    std::vector<SpikeScores> scores;
    std::vector<double> limits;
    std::vector<std::string> states;
    for (std::size_t step = 1; step <= results.size(); ++step) {
        limits.push_back(whole.drop_above(static_cast<std::int64_t>(step)));
        scores.push_back(observe(whole, step));
        states.push_back(whole.state().dump());
    }
    for (const std::size_t saved : {0, 1, 31, 33, 34, 100, 129, 130, 219, 220, 300}) {
        SpikeWatch resumed(6);
        resumed.restore(saved == 0 ? nlohmann::json() : nlohmann::json::parse(states[saved - 1]));
        for (std::size_t step = saved + 1; step <= results.size(); ++step) {
            REQUIRE(resumed.drop_above(static_cast<std::int64_t>(step)) == limits[step - 1]);
            const SpikeScores again = observe(resumed, step), &first = scores[step - 1];
            REQUIRE(std::isnan(again.norm) == std::isnan(first.norm));
            if (!std::isnan(first.norm)) REQUIRE(again.norm == first.norm);
            if (!std::isnan(first.loss)) REQUIRE(again.loss == first.loss);
            REQUIRE(resumed.state().dump() == states[step - 1]);
        }
    }
}

TEST_CASE("a level that lasts becomes the usual one, so updates are not dropped for ever") {
    SpikeWatch watch(6);
    const std::vector<Result> results = run_of(400);
    std::int64_t dropped = 0, last = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const auto step = static_cast<std::int64_t>(i + 1);
        const double norm = results[i].norm * (step > 200 ? 20 : 1);
        if (norm > watch.drop_above(step)) {
            ++dropped;
            last = step;
        }
        watch.observe(step, results[i].loss, norm);
    }
    CHECK(dropped >= 32);
    CHECK(dropped <= 66);
    CHECK(last <= 266);
}

TEST_CASE("steps without results are left out, and steps that are all alike divide by nothing") {
    SpikeWatch watch(6);
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (std::int64_t step = 1; step <= 40; ++step) watch.observe(step, 2, 0.5);
    const nlohmann::json before = watch.state();
    for (const auto& [loss, norm] : {Result{kNan, 0}, {kNan, 1}, {2, kNan}, {2, kInfinity}, {kInfinity, 1}, {2, 0}}) {
        const SpikeScores scores = watch.observe(41, loss, norm);
        CHECK(std::isnan(scores.loss));
        CHECK(std::isnan(scores.norm));
        CHECK_FALSE(scores.spike());
    }
    CHECK(watch.state() == before);
    CHECK(watch.drop_above(42) == Approx(0.5 * std::exp(0.06)).epsilon(1e-12));
    const SpikeScores scores = watch.observe(42, 2.004, 0.5 * std::exp(0.05));
    CHECK(scores.loss == Approx(4).epsilon(1e-9));
    CHECK(scores.norm == Approx(5).epsilon(1e-9));
}

TEST_CASE("a state that is none is refused by name") {
    const auto refusal = [](const char* json) {
        SpikeWatch watch;
        return message_of([&] { watch.restore(nlohmann::json::parse(json)); });
    };
    CHECK(refusal(R"({"steps": "3 5", "loss": "4.5 4.25", "grad_norm": "1 2.5e-3"})").empty());
    CHECK_THAT(refusal("7"), Contains("spike_watch.steps is not a string of numbers"));
    CHECK_THAT(refusal(R"({"steps": "3", "loss": "4.5"})"), Contains("spike_watch.grad_norm is not a string"));
    CHECK_THAT(refusal(R"({"steps": "3 x", "loss": "", "grad_norm": ""})"), Contains("steps: entry 2 is not a number"));
    CHECK_THAT(refusal(R"({"steps": "3", "loss": "4.5,", "grad_norm": "1"})"), Contains("loss: entry 1 is not"));
    CHECK_THAT(refusal(R"({"steps": "3", "loss": "4.5 ", "grad_norm": ""})"),
               Contains("1 losses and 0 gradient norms"));
    CHECK_THAT(refusal(R"({"steps": "3 3", "loss": "4 4", "grad_norm": "1 1"})"), Contains("3 is not after 3"));
    CHECK_THAT(refusal(R"({"steps": "3", "loss": "4", "grad_norm": "0"})"), Contains("gradient norm 0 of step 3"));
    CHECK_THAT(refusal(R"({"steps": "3", "loss": "inf", "grad_norm": "1"})"), Contains("loss inf"));
}

TEST_CASE("a spike's line") {
    const SpikeScores scores{.loss = 1.2, .norm = 9.125, .usual_loss = 4.5, .usual_norm = 1.21};
    CHECK(spike_line(57, 4.56, 12.34, scores, false) ==
          "spike at step 57: gradient norm 12.3, z 9.12, median 1.21; loss 4.56, z 1.2, median 4.5");
    CHECK_THAT(spike_line(57, 4.56, 12.34, scores, true), Contains("median 4.5; the update was dropped"));
}
