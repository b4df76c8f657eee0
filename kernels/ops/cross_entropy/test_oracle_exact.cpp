// The oracle of ExactCrossEntropy, and of FinishCrossEntropy's flags, against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

namespace {

using Names = std::set<std::string>;

ExactCrossEntropy exact_of(Operands& operands, bool evaluation) {
    ExactCrossEntropy op;
    op.a = operands.add(DType::bf16, 90, 136, Fill::normal, 1, 8);
    op.table = operands.add(DType::bf16, 1000, 136, Fill::normal, 6, 8);  // logits of size 70
    op.rstd = operands.statistic(90, Fill::positive);
    op.targets = operands.add(DType::i32, 1, 90, Fill::targets, 1000);
    op.flags = operands.add(DType::i32, 1, 90, Fill::targets, 1);  // -1 and 0
    if (!evaluation) {
        op.exponentials = operands.add(DType::bf16, 90, 1024, Fill::positive, 1, 24);
        op.scale = operands.statistic(90, Fill::positive);
        op.dot = operands.statistic(90, Fill::normal);
    }
    op.loss = operands.statistic(90, Fill::positive);
    op.scratch = operands.scratch(op.scratch_bytes());
    return op;
}

}  // namespace

TEST_CASE("the oracle judges flagged rows", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const bool evaluation : {false, true})
        for (const std::int64_t work_bytes : {std::int64_t{256} << 20, std::int64_t{1} << 16})
            for (const bool on_hopper : {true, false}) {
                Operands operands;
                const ExactCrossEntropy op = exact_of(operands, evaluation);
                const cases::DeviceBuffers device(operands.buffers, 17);
                oracle::Oracle oracle(work_bytes);
                agrees(oracle, device.memory(), op, "ExactCrossEntropy", on_hopper ? launch_on_hopper : launch_on_host);
            }
}

TEST_CASE("the oracle names the mistakes of the exact way", "[gpu][oracle]") {
    if (!has_hopper()) return;
    Operands operands;
    const ExactCrossEntropy op = exact_of(operands, false);
    const View others = operands.add(DType::i32, 1, 90, Fill::targets, 1000),
               none = operands.add(DType::i32, 1, 90, Fill::positions, 1);
    const auto mistake = [&](const ExactCrossEntropy& launched, const std::function<void(const Memory&)>& plant = {}) {
        return named_afresh(operands, op, launched, plant);
    };
    CHECK(mistake(op) == Names{});
    ExactCrossEntropy other = op;
    other.flags = none;  // flagged rows left as they were
    CHECK(mistake(other) == Names{"dot", "exponentials", "loss", "scale"});
    other = op;
    other.targets = others;  // dot is right for the exponentials as stored, and no target is likely: scale is 1
    CHECK(mistake(other) == Names{"exponentials", "loss"});
    other = op;
    other.rstd = View{};
    CHECK(mistake(other) == Names{"dot", "exponentials", "loss"});
    other = op;
    std::swap(other.scale, other.dot);
    CHECK(mistake(other) == Names{"dot", "scale"});
    // Rows that are not flagged must stay: all of them doubled, flagged or not.
    CHECK(mistake(op, [&](const Memory& memory) {
              alter(op.loss, memory, [](std::int64_t, std::int64_t, double value) { return 2 * value; });
          }) == Names{"loss"});
    // Elements beyond the vocabulary, and the target's.
    CHECK(mistake(op, [&](const Memory& memory) {
              alter(op.exponentials, memory,
                    [](std::int64_t, std::int64_t column, double value) { return column >= 1000 ? 1 : value; });
          }).count("exponentials") == 1);
    CHECK(mistake(op, [&](const Memory& memory) {
              alter(op.exponentials, memory,
                    [](std::int64_t, std::int64_t, double value) { return value == -1 ? 1 : value; });
          }) == Names{"dot", "exponentials"});
}

TEST_CASE("the oracle judges flags", "[gpu][oracle]") {
    if (!has_hopper()) return;
    Operands operands;
    FinishCrossEntropy op;
    op.sums = operands.add(DType::f32, 251, 2 * 300, Fill::positive, 0x1p-55);
    op.target_logit = operands.statistic(300, Fill::normal, 200);
    op.targets = operands.add(DType::i32, 1, 300, Fill::targets, 20);
    op.exponentials = operands.add(DType::bf16, 300, 1000, Fill::positive, 0x1p-58, 24);
    op.scale = operands.result(300);
    op.dot = operands.result(300);
    op.loss = operands.result(300);
    op.flags = operands.add(DType::i32, 1, 300, Fill::positions, 1);
    const cases::DeviceBuffers device(operands.buffers, 17);
    oracle::Oracle oracle;
    agrees(oracle, device.memory(), op, "FinishCrossEntropy with flags");

    const cases::DeviceBuffers fresh(operands.buffers, 17);
    FinishCrossEntropy other = op;
    other.flags = View{};  // flagged rows finished as the others, and no flag set
    CHECK(named(oracle, fresh.memory(), op, other) == Names{"dot", "exponentials", "flags", "loss", "scale"});
}
