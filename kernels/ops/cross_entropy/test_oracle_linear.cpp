// The oracle of LinearCrossEntropy against right and wrong results.
#include "tests/hopper/gemm_check.h"
#include "tests/hopper/oracle_plants.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges a vocabulary that ends inside a tile", "[gpu][oracle]") {
    if (!has_hopper()) return;
    oracle::Oracle oracle;
    judge(oracle, cases::make_case({"LinearCrossEntropy rstd", 260, 32064, 72}, {.vocab = 32001}), "ragged vocabulary");
}

TEST_CASE("the oracle judges exponentials at their limit", "[gpu][oracle]") {
    if (!has_hopper()) return;
    oracle::Oracle oracle;
    for (const bool evaluation : {false, true}) {
        const GemmCase far =
            cases::make_case({"LinearCrossEntropy rstd", 260, 784, 72}, {.evaluation = evaluation, .distance = 150});
        const cases::DeviceBuffers device(far.buffers, 23);
        agrees(oracle, device.memory(), far.op, "far from the target");
    }
}

TEST_CASE("the oracle names the mistakes of cross-entropy", "[gpu][oracle]") {
    if (!has_hopper()) return;
    using Names = std::set<std::string>;
    oracle::Oracle oracle;
    GemmCase made = cases::make_case({"LinearCrossEntropy rstd", 260, 784, 72}, {.distance = 150});
    const auto& op = std::get<LinearCrossEntropy>(made.op);
    const View zeros{static_cast<BufferId>(made.buffers.size()), DType::f32, 0, 1, 260, 260, 0};
    made.buffers.push_back({"zeros", zeros, cases::Fill::ones, 0, Access::in});
    const cases::DeviceBuffers device(made.buffers, 23);
    const auto altered = [&](const auto& change) {
        return named(oracle, device.memory(), op, op, [&] { alter(op.exponentials, device.memory(), change); });
    };
    CHECK(named(oracle, device.memory(), op, op) == Names{});
    // An exponential without the shift, and one beyond the limit.
    CHECK(altered([](auto, auto, double e) { return e < 1 ? 0x1p58 * e : e; }) == Names{"exponentials"});
    CHECK(altered([](auto, auto, double e) { return e == 0x1p110 ? 0x1p111 : e; }) == Names{"exponentials"});
    auto other = op;
    other.target_logit = zeros;
    CHECK(named(oracle, device.memory(), op, other) == Names{"exponentials", "sums"});
    // Sums that leave out one column.
    other = op;
    other.vocab = 783;
    CHECK(named(oracle, device.memory(), op, other) == Names{"exponentials", "sums"});
}
