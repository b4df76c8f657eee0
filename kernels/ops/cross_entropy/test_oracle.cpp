// The oracle of TargetLogit, FinishCrossEntropy and ReduceLoss against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges the targets' logits", "[gpu][oracle]") {
    if (!has_hopper()) return;
    using Names = std::set<std::string>;
    for (const bool with_rstd : {false, true}) {
        Operands operands;
        TargetLogit op;
        op.a = operands.add(DType::bf16, 300, 264, Fill::normal, 1, 8);
        op.table = operands.add(DType::bf16, 1000, 264, Fill::normal, 0.06, 8);
        if (with_rstd) op.rstd = operands.statistic(300, Fill::positive);
        op.targets = operands.add(DType::i32, 1, 300, Fill::targets, 1000);
        op.target_logit = operands.result(300);
        const View others = operands.add(DType::i32, 1, 300, Fill::targets, 1000);
        judge(operands, op, "TargetLogit");

        const cases::DeviceBuffers device(operands.buffers, 17);
        oracle::Oracle oracle;
        TargetLogit other = op;
        other.rstd = View{};
        CHECK(named(oracle, device.memory(), op, other) == (with_rstd ? Names{"target_logit"} : Names{}));
        other = op;
        other.targets = others;
        CHECK(named(oracle, device.memory(), op, other) == Names{"target_logit"});
    }
}

TEST_CASE("the oracle judges the loss", "[gpu][oracle]") {
    if (!has_hopper()) return;
    using Names = std::set<std::string>;
    Operands operands;
    FinishCrossEntropy op;
    op.sums = operands.add(DType::f32, 251, 2 * 300, Fill::positive, 0x1p-55);
    op.target_logit = operands.statistic(300, Fill::normal, 10);
    op.targets = operands.add(DType::i32, 1, 300, Fill::targets, 20);
    op.exponentials = operands.add(DType::bf16, 300, 1000, Fill::positive, 0x1p-58, 24);
    op.scale = operands.result(300);
    op.dot = operands.result(300);
    op.loss = operands.result(300);
    const View others = operands.add(DType::i32, 1, 300, Fill::targets, 20),
               zeros = operands.statistic(300, Fill::ones, 0);
    judge(operands, op, "FinishCrossEntropy", 1 << 20, {"target", "dot"});

    FinishCrossEntropy evaluation = op;
    evaluation.exponentials = View{};
    evaluation.scale = evaluation.dot = View{};
    judge(operands, evaluation, "FinishCrossEntropy of an evaluation");

    const auto mistake = [&](const FinishCrossEntropy& launched, const std::function<void(const Memory&)>& plant = {}) {
        return named_afresh(operands, op, launched, plant);
    };
    CHECK(mistake(op) == Names{});
    FinishCrossEntropy other = op;
    other.target_logit = zeros;  // dot without its term of t
    CHECK(mistake(other) == Names{"dot"});
    other = op;
    other.targets = others;
    CHECK(mistake(other) == Names{"dot", "exponentials", "loss", "scale", "target"});
    other = op;
    std::swap(other.scale, other.dot);
    CHECK(mistake(other) == Names{"dot", "scale"});
    // A target's exponential left as it was.
    CHECK(mistake(op, [&](const Memory& memory) {
              const cases::DeviceBuffers fresh(operands.buffers, 17);
              const Planting old(op.exponentials, fresh.memory()), targets(op.targets, memory);
              alter(op.exponentials, memory, [&](std::int64_t row, std::int64_t column, double value) {
                  return static_cast<double>(column) == targets.get(0, row) ? old.get(row, column) : value;
              });
          }) == Names{"dot", "target"});
}
