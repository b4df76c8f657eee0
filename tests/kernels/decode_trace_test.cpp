// What the fused decode kernel's time stamps are made into.
#include "kernels/hopper/decode/report/trace.h"
#include "tests/catch.h"

using namespace coda;
using namespace coda::hopper::decode;
using Catch::Contains;

namespace {

/// Two SMs: qkv on both, of which SM 1 begins 1 us later, then gate_up only on SM 1.
struct Example {
    DecodePlan plan;
    StepTrace trace;

    Example() {
        plan.grid = 2;
        plan.ops.resize(3);
        plan.ops[1].kind = OpKind::gate_up;
        plan.ops[2].kind = OpKind::choose;
        trace.resize(static_cast<std::size_t>(stamp_index(3, 0, 2, 0, Stamp::begin)));
        const int consumer = 3, epilogue = kConsumerWarps;
        for (int sm = 0; sm < 2; ++sm) {
            const std::uint64_t late = sm == 1 ? 1000 : 0;
            set(0, sm, consumer, 100000 + late, 102000 + late);
            set(1, sm, consumer, 105000 + late, sm == 1 ? 110000 : 0);
            set(2, sm, consumer, sm == 1 ? 114000 : 106000, 0);
            set(0, sm, epilogue, 100000, 104000);
            set(1, sm, epilogue, 107000 + late, sm == 1 ? 113000 : 0);
            set(2, sm, epilogue, sm == 1 ? 115000 : 108000, 0);
        }
    }
    void set(int op, int sm, int warp, std::uint64_t begin, std::uint64_t ready) {
        trace[static_cast<std::size_t>(stamp_index(op, sm, plan.grid, warp, Stamp::begin))] = begin;
        trace[static_cast<std::size_t>(stamp_index(op, sm, plan.grid, warp, Stamp::ready))] = ready;
    }
};

}  // namespace

TEST_CASE("fused decode: the times of an op come from the stamps of the warps that work in it") {
    const Example example;
    const std::vector<OpTimes> times = op_times(example.trace, example.plan);
    REQUIRE(times.size() == 3);
    CHECK(times[0].wall == Approx(8));    // 100 to 108: SM 1's epilogue warp
    CHECK(times[0].wait == Approx(2));    // both
    CHECK(times[0].work == Approx(3));    // 102 to 105, 103 to 106
    CHECK(times[0].finish == Approx(2));  // 106 to 108
    CHECK(times[1].wall == Approx(7));    // 108 to 115
    CHECK(times[1].wait == Approx(4));    // only of SM 1: 106 to 110
    CHECK(times[1].work == Approx(4));
    CHECK(times[1].finish == Approx(1));
    CHECK(times[2].wall == 0);  // no warp has a stamp of its work there
    const std::string table = op_table(example.trace, example.plan);
    CHECK_THAT(table, Contains("qkv") && Contains("gate_up") && Contains("8.00") && !Contains("down"));
}

TEST_CASE("fused decode: the trace has a wait and a work of every warp that works") {
    const Example example;
    const std::string json = chrome_trace(example.trace, example.plan);
    CHECK_THAT(json, Contains(R"("name":"wait","cat":"gate_up","pid":1,"tid":3,"ts":6.000,"dur":4.000)"));
    CHECK_THAT(json, Contains(R"("name":"gate_up","cat":"gate_up","pid":1,"tid":3,"ts":10.000,"dur":4.000)"));
    CHECK_THAT(json, !Contains(R"("cat":"gate_up","pid":0)"));
    CHECK_THAT(json, Contains(R"("pid":1,"tid":10,"args":{"name":"producer"})"));
    std::size_t events = 0;
    for (std::size_t at = json.find("\"X\""); at != std::string::npos; at = json.find("\"X\"", at + 1)) ++events;
    CHECK(events == 2 * 6);
}
