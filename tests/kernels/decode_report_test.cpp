// What the watchdog of the fused decode kernel tells: the wait where something is missing, and not one behind it.
#include "kernels/hopper/decode/report/report.h"
#include "tests/catch.h"

using namespace coda;
using namespace coda::hopper::decode;

TEST_CASE("fused decode: the watchdog's report holds a wait, and the earliest is the largest") {
    const LateWait waits[] = {
        {.awaited = Awaited::input, .step = 0, .op = 6, .tile = 44, .sm = 120, .warp = 2},
        {.awaited = Awaited::residual, .step = 0, .op = 6, .tile = 0, .sm = 0, .warp = 8},
        {.awaited = Awaited::partials, .step = 0, .op = 6, .tile = 0, .sm = 0, .warp = 8},
        {.awaited = Awaited::input, .step = 0, .op = 7, .tile = 0, .sm = 0, .warp = 0},
        {.awaited = Awaited::commit, .step = 2, .op = 1, .tile = -1, .sm = 131, .warp = 10},
        {.awaited = Awaited::warps,
         .step = kMostSteps - 1,
         .op = kMostOps - 1,
         .tile = kMostTiles - 1,
         .sm = kMostSms - 1,
         .warp = 10},
    };
    std::uint64_t before = ~std::uint64_t{0};
    for (const LateWait& wait : waits) {
        const std::uint64_t key = key_of(wait);
        CHECK(key < before);
        CHECK(key != 0);
        before = key;
        const LateWait found = wait_of(key);
        CHECK(found.awaited == wait.awaited);
        CHECK(found.step == wait.step);
        CHECK(found.op == wait.op);
        CHECK(found.tile == wait.tile);
        CHECK(found.sm == wait.sm);
        CHECK(found.warp == wait.warp);
    }
    DecodePlan plan;
    plan.ops.resize(8);
    plan.ops[6].kind = OpKind::attention;
    CHECK(describe(waits[0], plan) ==
          "the fused decode kernel stopped: SM 120 warp 2 waited too long for its input in op 6 (attention) tile 44 "
          "of step 0");
    CHECK(describe(waits[4], plan) ==
          "the fused decode kernel stopped: SM 131 warp 10 waited too long for the commit of a step in op 1 (qkv) of "
          "step 2");
}
