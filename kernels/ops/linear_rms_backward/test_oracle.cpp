// The oracle of LinearRmsBackward against results that lack their scale.
#include "tests/hopper/gemm_check.h"
#include "tests/hopper/oracle_plants.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle names a scale that is missing", "[gpu][oracle]") {
    if (!has_hopper()) return;
    using Names = std::set<std::string>;
    oracle::Oracle oracle;
    const GemmCase made = cases::make_case({"LinearRmsBackward", 328, 784, 520}, {.optionals = true});
    const auto& op = std::get<LinearRmsBackward>(made.op);
    const cases::DeviceBuffers device(made.buffers, 23);
    auto other = op;
    other.scale = View{};
    CHECK(named(oracle, device.memory(), op, op) == Names{});
    CHECK(named(oracle, device.memory(), op, other) == Names{"dgamma", "dx", "n"});
    CHECK(named(oracle, device.memory(), op, op, [&] {
              const Planting scale(op.scale, device.memory());
              alter(op.n, device.memory(),
                    [&](std::int64_t row, auto, double value) { return value / scale.get(0, row); });
          }) == Names{"n"});
}
