// The oracle of the optimizer against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

namespace {

SumSquares sum_squares(Operands& operands, std::int64_t count) {
    SumSquares op;
    op.grad = operands.statistic(count, Fill::normal, 0.1);
    op.sums = operands.add(DType::f64, 1, SumSquares::sums_of(count), Fill::nothing);
    return op;
}

GradNorm grad_norm(Operands& operands, double max_norm) {
    GradNorm op;
    op.sums = operands.add(DType::f64, 1, 77, Fill::positive, 10);
    op.loss = operands.scalar(2.5);
    op.drop_above = operands.scalar(INFINITY);
    op.norm = operands.result(1);
    op.clip = operands.result(1);
    op.skip = operands.flag();
    op.max_norm = max_norm;
    return op;
}

struct Optimizer {
    Operands operands;
    AdamW op;

    explicit Optimizer(std::int64_t count, DType moments) {
        op.grad = operands.statistic(count, Fill::normal, 1e-3);
        op.master = operands.statistic(count, Fill::normal, 0.02);
        op.m = operands.add(moments, 1, count, Fill::normal, 1e-3);
        op.v = operands.add(moments, 1, count, Fill::positive, 1e-6);
        op.working = operands.add(DType::bf16, 1, count, Fill::nothing);
        op.lr = operands.scalar(3e-4);
        op.correction1 = operands.scalar(5);
        op.correction2 = operands.scalar(20);
        op.clip = operands.scalar(0.75);
        op.step = operands.add(DType::i32, 1, 1, Fill::positions, 1);
        op.skip = operands.flag();
        op.norms = operands.statistic(64, Fill::normal);
        op.first_norm = 2 * count;
        op.first = 160;
        op.folds = {{.first = 100, .rows = 13, .cols = 8, .gamma = op.first_norm},
                    {.first = 240, .rows = 20, .cols = 16, .gamma = op.first_norm + 16}};
        op.beta1 = 0.9;
        op.beta2 = 0.95;
        op.eps = 1e-8;
        op.weight_decay = 0.1;
        op.seed = 1337;
    }
};

}  // namespace

TEST_CASE("the oracle judges the optimizer", "[gpu][oracle]") {
    if (!has_hopper()) return;
    constexpr std::int64_t kCount = 100'000;
    Operands squares;
    const SumSquares sums = sum_squares(squares, 5 * kCount);
    judge(squares, sums, "SumSquares");
    for (const double max_norm : {0.0, 1.0}) {
        Operands operands;
        const GradNorm op = grad_norm(operands, max_norm);
        judge(operands, op, "GradNorm");
    }
    for (const DType moments : {DType::f32, DType::bf16}) {
        const Optimizer update(kCount, moments);
        judge(update.operands, update.op, "AdamW", 1 << 20, {"working"});
        AdamW alone = update.op;
        alone.working = {};
        judge(update.operands, alone, "AdamW without a working copy");
    }
}

TEST_CASE("the oracle knows what makes an update be skipped", "[gpu][oracle]") {
    if (!has_hopper()) return;
    struct Situation {
        std::int32_t skip;
        float loss, drop_above;
    };
    for (const auto& [skip, loss, drop_above] : {Situation{1, 2.5f, INFINITY},
                                                 {0, INFINITY, INFINITY},
                                                 {0, NAN, INFINITY},
                                                 {0, 2.5f, INFINITY},
                                                 {2, 2.5f, INFINITY},
                                                 {0, 2.5f, -1},
                                                 {3, 2.5f, 1},
                                                 {2, 2.5f, 1e6f}}) {
        Operands operands;
        const GradNorm op = grad_norm(operands, 1.0);
        const cases::DeviceBuffers device(operands.buffers, 17);
        CUDA_CHECK(cudaMemcpy(device.memory().address(op.skip), &skip, sizeof skip, cudaMemcpyHostToDevice));
        CUDA_CHECK(cudaMemcpy(device.memory().address(op.loss), &loss, sizeof loss, cudaMemcpyHostToDevice));
        CUDA_CHECK(
            cudaMemcpy(device.memory().address(op.drop_above), &drop_above, sizeof drop_above, cudaMemcpyHostToDevice));
        oracle::Oracle oracle;
        judges_rightly(oracle, device.memory(), op,
                       text("GradNorm, skip ", skip, " loss ", loss, " limit ", drop_above));
    }
}

TEST_CASE("the oracle knows a skipped update", "[gpu][oracle]") {
    if (!has_hopper()) return;
    const Optimizer update(1000, DType::f32);
    const cases::DeviceBuffers device(update.operands.buffers, 17);
    const std::int32_t one = 1;
    CUDA_CHECK(cudaMemcpy(device.memory().address(update.op.skip), &one, sizeof one, cudaMemcpyHostToDevice));
    oracle::Oracle oracle;
    const auto [before, report] = agrees(oracle, device.memory(), update.op, "AdamW, skipped", launch_on_host);
    CHECK(report.operands.size() == 3);
    const std::pair<const char*, View> written[] = {
        {"master", update.op.master}, {"m", update.op.m}, {"v", update.op.v}};
    for (const auto& [name, view] : written) {
        INFO("operand " << name);
        Planting result(view, device.memory());
        plant_element(result, oracle::tolerance(update.op, name));
        REQUIRE(result.plant());
        for (const oracle::OperandError& error : oracle.check(update.op, device.memory(), before).operands)
            CHECK(beyond(update.op, error) == (error.operand == name));
        result.restore();
    }
}
