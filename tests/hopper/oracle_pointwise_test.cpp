// The oracle against the ops that are no GEMM and no attention, by the Hopper kernels and by cpu::run: two paths that
// share nothing with its own.
#include "kernels/tiling.h"
#include "tests/hopper/oracle_plants.h"

using namespace coda;
using namespace coda::test;
using bench::Buffer;
using bench::Fill;

namespace {

struct Operands {
    std::vector<Buffer> buffers;

    View add(DType dtype, std::int64_t rows, std::int64_t columns, Fill fill, double scale = 1, std::int64_t gap = 0) {
        const View view{static_cast<BufferId>(buffers.size()), dtype, 0, rows, columns, columns + gap, 0};
        buffers.push_back({"", view, fill, scale, Access::in});
        return view;
    }
    View statistic(std::int64_t columns, Fill fill, double scale = 1) {
        return add(DType::f32, 1, columns, fill, scale);
    }
    View scalar(double value) { return statistic(1, Fill::ones, value); }
    View flag() { return add(DType::i32, 1, 1, Fill::positions, 1); }  // 0
    View result(std::int64_t columns) { return statistic(columns, Fill::nothing); }
    Accumulate<Vector> accumulated(std::int64_t columns, bool accumulate) {
        if (!accumulate) return {result(columns), Beta::overwrite};
        return {statistic(columns, Fill::normal, 3), Beta::accumulate};
    }
    View scratch(std::int64_t bytes) {
        View view = add(DType::f32, 1, std::max<std::int64_t>(bytes, 4) / 4, Fill::nothing);
        view.dtype = DType::u8;
        view.cols = view.ld = std::max<std::int64_t>(bytes, 4);
        return view;
    }
};

/// Both paths on fresh operands each, whole and with a work space of `band_bytes`.
void judge(const Operands& operands, const Op& op, const std::string& label, std::int64_t band_bytes = 1 << 20,
           const std::set<std::string>& follows = {}) {
    for (const std::int64_t work_bytes : {std::int64_t{256} << 20, band_bytes})
        for (const bool on_hopper : {true, false}) {
            INFO(label << (on_hopper ? " by the kernel" : " by the host") << ", work space " << work_bytes);
            oracle::Oracle oracle(work_bytes);
            const bench::DeviceBuffers device(operands.buffers, 17);
            judges_rightly(oracle, device.memory(), op, label, on_hopper ? launch_on_hopper : launch_on_host, follows);
        }
}

GradNorm grad_norm(Operands& operands, std::int64_t count, double max_norm) {
    GradNorm op;
    op.grad = operands.statistic(count, Fill::normal, 0.1);
    op.loss = operands.scalar(2.5);
    op.norm = operands.result(1);
    op.clip = operands.result(1);
    op.skip = operands.flag();
    op.scratch = operands.scratch(tiling::scratch_bytes(op));
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
        op.decayed = count / 2 / 8 * 8;
        op.folds = {{.first = 16, .rows = 3, .cols = 8, .gamma = op.decayed},
                    {.first = 64, .rows = 20, .cols = 16, .gamma = op.decayed + 16}};
        op.beta1 = 0.9;
        op.beta2 = 0.95;
        op.eps = 1e-8;
        op.weight_decay = 0.1;
        op.seed = 1337;
    }
};

}  // namespace

TEST_CASE("the oracle judges the finishing reductions", "[gpu][oracle]") {
    if (!has_hopper()) return;
    Operands rstd, rows;
    FinishRstd finish;
    finish.square = rstd.add(DType::f32, 16, 1000, Fill::positive, 5, 4);
    finish.rstd = rstd.result(1000);
    finish.width = 2048;
    finish.eps = 1e-5;
    judge(rstd, finish, "FinishRstd");

    FinishRowSum sum;
    sum.partials = rows.add(DType::f32, 48, 1000, Fill::normal);
    sum.sum = rows.result(1000);
    judge(rows, sum, "FinishRowSum");

    for (const bool accumulate : {false, true}) {
        Operands columns, total;
        FinishColumnSum column_sum;
        column_sum.partials = columns.add(DType::f32, 67, 2056, Fill::normal);
        if (accumulate) column_sum.gamma = columns.statistic(2056, Fill::positive);
        column_sum.grad = columns.accumulated(2056, accumulate);
        judge(columns, column_sum, "FinishColumnSum");

        ReduceLoss reduce;
        reduce.loss = total.statistic(5000, Fill::positive, 9);
        reduce.alpha = total.scalar(1.0 / 5000);
        const Accumulate<Vector> to = total.accumulated(1, accumulate);
        reduce.total = {to, to.beta};
        judge(total, reduce, "ReduceLoss");
    }
}

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

        const bench::DeviceBuffers device(operands.buffers, 17);
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

    // In place, so every mistake has operands of its own.
    const auto mistake = [&](const FinishCrossEntropy& launched, const std::function<void(const Memory&)>& plant = {}) {
        const bench::DeviceBuffers device(operands.buffers, 17);
        oracle::Oracle oracle;
        return named(oracle, device.memory(), op, launched, [&] {
            if (plant) plant(device.memory());
        });
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
    // A target's exponential as it was.
    CHECK(mistake(op, [&](const Memory& memory) {
              const bench::DeviceBuffers fresh(operands.buffers, 17);
              const Planting old(op.exponentials, fresh.memory()), targets(op.targets, memory);
              alter(op.exponentials, memory, [&](std::int64_t row, std::int64_t column, double value) {
                  return static_cast<double>(column) == targets.get(0, row) ? old.get(row, column) : value;
              });
          }) == Names{"dot", "target"});
}

TEST_CASE("the oracle judges the embedding and its gradient", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const DType table : {DType::bf16, DType::f32}) {
        Operands forward;
        Embed embed;
        embed.tokens = forward.add(DType::i32, 1, 300, Fill::positions, 96);
        embed.table = forward.add(table, 96, 256, Fill::normal, 0.02);
        embed.x = forward.add(DType::bf16, 300, 256, Fill::nothing);
        embed.rstd = forward.result(300);
        embed.eps = 1e-5;
        judge(forward, embed, "Embed", 1 << 20, {"rstd"});
    }

    Operands gradient;
    EmbedBackward backward;
    backward.tokens = gradient.add(DType::i32, 1, 300, Fill::positions, 96);
    backward.dx = gradient.add(DType::bf16, 300, 256, Fill::normal);
    backward.grad = gradient.add(DType::f32, 1000, 256, Fill::normal, 0.1);
    backward.scratch = gradient.scratch(tiling::scratch_bytes(backward));
    judge(gradient, backward, "EmbedBackward", 1 << 16);

    Operands zeros;
    Zero zero;
    zero.out = zeros.add(DType::f32, 100, 256, Fill::normal, 1, 8);
    judge(zeros, zero, "Zero");
}

TEST_CASE("the oracle judges the optimizer", "[gpu][oracle]") {
    if (!has_hopper()) return;
    constexpr std::int64_t kCount = 100'000;
    for (const double max_norm : {0.0, 1.0}) {
        Operands operands;
        const GradNorm op = grad_norm(operands, kCount, max_norm);
        judge(operands, op, "GradNorm");
    }
    for (const DType moments : {DType::f32, DType::bf16}) {
        const Optimizer update(kCount, moments);
        judge(update.operands, update.op, "AdamW", 1 << 20, {"working"});
    }
}

TEST_CASE("the oracle knows what makes an update be skipped", "[gpu][oracle]") {
    if (!has_hopper()) return;
    struct Situation {
        std::int32_t skip;
        float loss;
    };
    for (const auto& [skip, loss] : {Situation{1, 2.5f}, {0, INFINITY}, {0, NAN}, {0, 2.5f}}) {
        Operands operands;
        const GradNorm op = grad_norm(operands, 1000, 1.0);
        const bench::DeviceBuffers device(operands.buffers, 17);
        CUDA_CHECK(cudaMemcpy(device.memory().address(op.skip), &skip, sizeof skip, cudaMemcpyHostToDevice));
        CUDA_CHECK(cudaMemcpy(device.memory().address(op.loss), &loss, sizeof loss, cudaMemcpyHostToDevice));
        oracle::Oracle oracle;
        judges_rightly(oracle, device.memory(), op, text("GradNorm, skip ", skip, " loss ", loss));
    }
}

TEST_CASE("the oracle knows a skipped update", "[gpu][oracle]") {
    if (!has_hopper()) return;
    const Optimizer update(1000, DType::f32);
    const bench::DeviceBuffers device(update.operands.buffers, 17);
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
