// The oracle against the GEMM programs: it agrees with right results, and names the operand of a wrong one.
#include "tests/hopper/gemm_check.h"
#include "tests/hopper/oracle_plants.h"

using namespace coda;
using namespace coda::test;
using bench::GemmCase;

namespace {

void judge(oracle::Oracle& oracle, const GemmCase& made, const std::string& label) {
    const bench::DeviceBuffers device(made.buffers, 23);
    judges_rightly(oracle, device.memory(), made.op, label);
}

GemmCase swiglu_backward_in_place() {
    GemmCase made = bench::make_case({"LinearSwigluBackward", 328, 784, 520}, {.optionals = true});
    auto& op = std::get<LinearSwigluBackward>(made.op);
    op.dz = View(op.z);
    return made;
}

}  // namespace

TEST_CASE("the oracle judges every GEMM op", "[gpu][oracle]") {
    if (!has_hopper()) return;
    oracle::Oracle whole;
    oracle::Oracle banded(std::int64_t{256} << 10);  // 83 rows of 784 columns; a row tile of 64 fits
    for (const char* program : kPrograms) {
        for (const bool accumulate : {false, true}) {
            const GemmCase made = bench::make_case({program, 328, has_heads(program) ? 768 : 784, 520},
                                                   {.accumulate = accumulate, .optionals = accumulate, .gap = 8});
            judge(whole, made, program);
            judge(banded, made, std::string(program) + " in bands");
        }
    }
    judge(whole, swiglu_backward_in_place(), "in place");
    judge(banded, swiglu_backward_in_place(), "in place, in bands");
}

TEST_CASE("the oracle judges a vocabulary that ends inside a tile", "[gpu][oracle]") {
    if (!has_hopper()) return;
    oracle::Oracle oracle;
    judge(oracle, bench::make_case({"LinearRstdCrossEntropy", 260, 32064, 72}, {.vocab = 32001}), "ragged vocabulary");
}

TEST_CASE("the oracle judges exponentials at their limit", "[gpu][oracle]") {
    if (!has_hopper()) return;
    oracle::Oracle oracle;
    for (const bool evaluation : {false, true}) {
        const GemmCase far =
            bench::make_case({"LinearRstdCrossEntropy", 260, 784, 72}, {.evaluation = evaluation, .distance = 150});
        const bench::DeviceBuffers device(far.buffers, 23);
        agrees(oracle, device.memory(), far.op, "far from the target");
    }
}

TEST_CASE("the oracle names the mistakes of cross-entropy", "[gpu][oracle]") {
    if (!has_hopper()) return;
    using Names = std::set<std::string>;
    oracle::Oracle oracle;
    GemmCase made = bench::make_case({"LinearRstdCrossEntropy", 260, 784, 72}, {.distance = 150});
    const auto& op = std::get<LinearCrossEntropy>(made.op);
    const View zeros{static_cast<BufferId>(made.buffers.size()), DType::f32, 0, 1, 260, 260, 0};
    made.buffers.push_back({"zeros", zeros, bench::Fill::ones, 0, Access::in});
    const bench::DeviceBuffers device(made.buffers, 23);
    const auto altered = [&](const auto& change) {
        return named(oracle, device.memory(), op, op, [&] { alter(op.exponentials, device.memory(), change); });
    };
    CHECK(named(oracle, device.memory(), op, op) == Names{});
    // Without the shift, and one that passed the limit.
    CHECK(altered([](auto, auto, double e) { return e < 1 ? 0x1p58 * e : e; }) == Names{"exponentials"});
    CHECK(altered([](auto, auto, double e) { return e == 0x1p110 ? 0x1p111 : e; }) == Names{"exponentials"});
    auto other = op;
    other.target_logit = zeros;
    CHECK(named(oracle, device.memory(), op, other) == Names{"exponentials", "sums"});
    // Sums of a column less.
    other = op;
    other.vocab = 783;
    CHECK(named(oracle, device.memory(), op, other) == Names{"exponentials", "sums"});
}

TEST_CASE("the oracle names a scale that is missing", "[gpu][oracle]") {
    if (!has_hopper()) return;
    using Names = std::set<std::string>;
    oracle::Oracle oracle;
    const GemmCase made = bench::make_case({"LinearRmsBackward", 328, 784, 520}, {.optionals = true});
    const auto& op = std::get<LinearRmsBackward>(made.op);
    const bench::DeviceBuffers device(made.buffers, 23);
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

TEST_CASE("the oracle refuses what it cannot check", "[gpu][oracle]") {
    if (!has_hopper()) return;
    const GemmCase made = bench::make_case({"WeightGradient", 328, 784, 520}, {.accumulate = true});
    const bench::DeviceBuffers device(made.buffers, 23);
    oracle::Oracle oracle;
    CHECK_THROWS_WITH(oracle.check(made.op, device.memory(), {}), Catch::Contains("grad was not captured"));
    oracle::Oracle tiny(1024);
    const auto before = tiny.capture(made.op, device.memory());
    CHECK_THROWS_WITH(tiny.check(made.op, device.memory(), before), Catch::Contains("work space"));
}

TEST_CASE("a copy that does not fit the device is refused by name", "[gpu][oracle]") {
    if (!has_hopper()) return;
    std::byte byte{};
    // Never touched: the copy's memory is asked for first.
    const View huge{0, DType::f32, 0, 1, std::int64_t{1} << 40, std::int64_t{1} << 40, 0};
    EmbedBackward op;
    op.grad = huge;
    oracle::Oracle oracle;
    CHECK_THROWS_WITH(oracle.capture(op, Memory(std::vector<std::byte*>{&byte})),
                      Catch::Contains("EmbedBackward's grad") && Catch::Contains("4398046511104 bytes"));
}
