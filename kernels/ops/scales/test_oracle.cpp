// The oracle of UpdateScales and CountF8 against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges UpdateScales and CountF8", "[gpu][oracle][f8]") {
    if (!has_hopper()) return;
    constexpr std::int32_t kTensors = 37;
    for (const int skip : {0, 1}) {
        Operands operands;
        UpdateScales op;
        op.amax = operands.statistic(kTensors, Fill::positive, 1e-3);
        op.history = operands.add(DType::f32, 5, kTensors, Fill::positive, 1e-3, 3);
        op.step = operands.add(DType::i32, 1, 1, Fill::ones, 7);
        op.skip = operands.add(DType::i32, 1, 1, Fill::ones, skip);
        op.scales = operands.result(kTensors);
        op.products = operands.result(kTensors);
        for (std::int32_t t = 0; t < kTensors; ++t) op.pairs.push_back({t - 1, kTensors - 1 - t});
        judge(operands, op, skip == 0 ? "UpdateScales" : "UpdateScales, skipped");

        using Names = std::set<std::string>;
        const auto twice = [&](const Memory& memory) {
            alter(op.scales, memory, [](auto, auto t, double scale) { return t == 9 ? 2 * scale : scale; });
        };
        CHECK((named_afresh(operands, op, op, twice) == Names{"scales"}));
        UpdateScales other = op;
        other.pairs[9][0] = kNormalised;
        CHECK((named_afresh(operands, op, other) == Names{"products"}));
    }
    for (const std::int64_t every : {1, 4}) {
        Operands operands;
        CountF8 op;
        op.codes = operands.add(every == 1 ? DType::f8e4m3 : DType::f8e5m2, 777, 272, Fill::normal,
                                every == 1 ? 100 : 12800, 16);
        op.counts = operands.add(DType::i32, 1, 2, Fill::ones, 5);
        op.every = every;
        judge(operands, op, "CountF8");
    }
}
