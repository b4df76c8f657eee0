// Which operation of an FP8 schedule makes which copy, and that another one of the same work has the same bits.
#include <algorithm>
#include <array>

#include "src/core/hazards.h"
#include "tests/catch.h"
#include "tests/model/f8_run.h"

using namespace coda;
using namespace coda::test;

namespace {

/// The number of ops of type T in a layer.
template <class T>
std::int64_t count_of(const Schedule& schedule, int layer) {
    return std::count_if(schedule.begin(), schedule.end(),
                         [&](const Step& step) { return step.layer == layer && std::holds_alternative<T>(step.op); });
}

}  // namespace

TEST_CASE("layers take the operands that the configuration says") {
    const Schedules first = F8Run(kFirstBf16, Recompute::none, kWithGeneration).schedules;
    CHECK(count_of<QuantiseF8>(first.first, 0) == 0);
    CHECK(count_of<LinearSwiglu>(first.first, 0) == 1);
    CHECK(count_of<LinearSwiglu>(first.first, 1) == 1);
    CHECK(count_of<QuantiseF8>(first.update, 0) == 0);
    CHECK(count_of<QuantiseF8>(first.update, 1) == 4);

    CHECK(first.weights.tensors().size() == 11);  // of a layer: o, y, z; two dx, dqkv, dz; four weights

    // Evaluation and generation read the bf16 weights; a plan without FP8 has none of this.
    const Schedules none = F8Run(PrecisionConfig{}).schedules;
    CHECK(none.scales.empty());
    for (const Schedule* schedule : {&first.evaluate, &first.decode, &none.first, &none.update}) {
        CHECK(count_of<QuantiseF8>(*schedule, 1) == 0);
    }
}

TEST_CASE("the op that makes dx makes its FP8 copies, where it and the op that reads them take FP8") {
    struct Expected {
        const char* name;
        PrecisionConfig precision;
        std::vector<std::string> by_epilogue, by_quantise;  // layer and step that make copies of dx
    };
    const std::vector<Expected> cases{
        {"all", PrecisionConfig::fp8(), {"1 gate_up_dgrad", "1 qkv_dgrad", "0 gate_up_dgrad"}, {"1 mlp_dx_f8"}},
        {"first layer bf16", kFirstBf16, {"1 gate_up_dgrad"}, {"1 mlp_dx_f8"}},
        {"last layer bf16", kLastBf16, {"0 gate_up_dgrad"}, {"0 mlp_dx_f8"}}};
    for (const Expected& expected : cases) {
        INFO(expected.name);
        const Schedules schedules = F8Run(expected.precision).schedules;
        for (const Schedule* schedule : {&schedules.first, &schedules.further}) {
            std::vector<std::string> by_epilogue, by_quantise;
            for (const Step& step : *schedule) {
                const std::string name = step.name;
                const auto* dgrad = std::get_if<LinearRmsBackward>(&step.op);
                if (dgrad != nullptr && dgrad->dx_codes) by_epilogue.push_back(text(step.layer, " ", name));
                if (name.ends_with("_dx_f8")) by_quantise.push_back(text(step.layer, " ", name));
            }
            CHECK(by_epilogue == expected.by_epilogue);
            CHECK(by_quantise == expected.by_quantise);
        }
    }
}

TEST_CASE("FP8 copies of dx by the op that makes dx, or by one of their own, have the same bits") {
    const auto apart = [](const Schedule& schedule) {
        Schedule result;
        for (Step step : schedule) {
            auto* dgrad = std::get_if<LinearRmsBackward>(&step.op);
            if (dgrad == nullptr || !dgrad->dx_codes) {
                result.push_back(step);
                continue;
            }
            const QuantiseF8 quantise{.x = dgrad->dx, .rstd = {}, .codes = dgrad->dx_codes};
            dgrad->dx_codes = {};
            result.push_back(step);
            result.push_back({step.phase, step.layer, "dx_f8", quantise});
        }
        CHECK(result.size() == schedule.size() + 3);
        return result;
    };
    const auto after_steps = [&](bool together) {
        F8Run run(PrecisionConfig::fp8());
        if (!together) {
            run.schedules.first = apart(run.schedules.first);
            run.schedules.further = apart(run.schedules.further);
        }
        run.begin(batches_of(1, 2));
        for (std::int64_t t = 1; t <= 3; ++t) run.train(t, batches_of(static_cast<std::uint64_t>(10 * t), 2));
        const HostViews& host = run.schedules.host;
        return std::array{run.elements(host.master), run.elements(host.m), run.elements(host.f8.history)};
    };
    CHECK(after_steps(true) == after_steps(false));
}

TEST_CASE("FP8 schedules have no hazards, and a wrong copy is one") {
    const Recompute recompute = GENERATE(Recompute::none, Recompute::swiglu);
    for (const F8Case& c : kF8Cases) {
        INFO(c.name);
        F8Run run(c.precision, recompute);
        CHECK_NOTHROW(plan_and_check(run.schedules));
    }
    // The weights' copies made before the scales that undo them.
    F8Run run(PrecisionConfig::fp8(), recompute, kWithGeneration);
    Schedule& update = run.schedules.update;
    const auto scales = std::find_if(update.begin(), update.end(),
                                     [](const Step& step) { return std::holds_alternative<UpdateScales>(step.op); });
    std::rotate(scales, scales + 1, scales + 2);
    CHECK_THROWS_WITH(plan_and_check(run.schedules), Catch::Contains("f8 scales"));
}
