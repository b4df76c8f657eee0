// The FP8 forms of TargetLogit and LinearCrossEntropy against their formulas in plain fp64 loops, on the same 8-bit
// operands; and that the two go together.
#include "kernels/ops/cross_entropy/test_exponentials.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("TargetLogit of FP8 operands is the factor times a sum in double") {
    constexpr std::int64_t kRows = 7, kWidth = 2048, kTokens = 30;
    Buffers buffers;
    TargetLogit op;
    op.a = buffers.random(DType::f8e4m3, kRows, kWidth, -1, 1, kWidth + 3);
    op.table = buffers.random(DType::f8e4m3, kTokens, kWidth, -1, 1, kWidth + 5);
    op.scale = buffers.scalar(DType::f32, 0.375);
    op.targets = buffers.indices({29, -1, 0, 7, 7, -100, 3});
    op.target_logit = buffers.vector(DType::f32, kRows);
    cpu::execute(op, buffers.memory());
    for (std::int64_t m = 0; m < kRows; ++m) {
        INFO("row " << m);
        const auto target = static_cast<std::int64_t>(buffers.get(op.targets, 0, m));
        double sum = 0;  // exact: a product of codes is a multiple of 2^-18 below 1
        for (std::int64_t k = 0; target >= 0 && k < kWidth; ++k)
            sum += buffers.get(op.a, m, k) * buffers.get(op.table, target, k);
        CHECK(buffers.get(op.target_logit, 0, m) == static_cast<double>(static_cast<float>(0.375 * sum)));
    }
    op.rstd = buffers.random(DType::f32, 1, kRows, 0.5, 2);
    CHECK_THROWS_WITH(cpu::execute(op, buffers.memory()), Catch::Contains("rstd must be absent"));
    op.rstd = View{};
    op.table = buffers.random(DType::bf16, kTokens, kWidth, -1, 1);
    CHECK_THROWS_WITH(cpu::execute(op, buffers.memory()), Catch::Contains("operand table is bf16, expected f8e4m3"));
    op.a = buffers.random(DType::bf16, kRows, kWidth, -1, 1);
    CHECK_THROWS_WITH(cpu::execute(op, buffers.memory()), Catch::Contains("scale goes with FP8 operands"));
}

TEST_CASE("LinearCrossEntropy of FP8 operands: exponentials of the factor times acc, and their partial sums") {
    for (const ProgramShape& shape : kProgramShapes)
        for (const std::int64_t vocab : {shape.n, std::max<std::int64_t>(1, shape.n / 2 - 11)}) {
            INFO("M " << shape.m << ", N " << shape.n << ", K " << shape.k << ", vocabulary " << vocab);
            F8Inputs in(shape);
            LinearCrossEntropy op;
            op.a = in.a;
            op.w = in.w;
            op.scale = in.scale;
            op.target_logit = in.buffers.random(DType::f32, 1, shape.m, -4, 4);
            in.buffers.set(op.target_logit, 0, shape.m / 2, -150);  // in this row every logit is beyond the limit
            op.exponentials = in.out(DType::bf16, shape.m, shape.n);
            op.sums = in.out(DType::f32, tiles(shape.n, shape.tile), 2 * shape.m);
            op.vocab = vocab;
            op.tile = shape.tile;
            in.run(op);

            const auto logit = [&](std::int64_t i, std::int64_t j) { return in.product(i, j); };
            check_exponentials(in, op, DType::bf16, DType::f32, logit, in.product.error);
            op.rstd = in.rstd(DType::f32, shape.m);
            CHECK_THROWS_WITH(in.run(op), Catch::Contains("rstd must be absent"));
        }
}

// The target's own exponential is 2^-kShift where its logit is of the same operands, whatever these were rounded from:
// without that, Σ e would not be the denominator of the target's probability.
TEST_CASE("the target's logit and the logits of the same FP8 operands make its exponential 1, shifted") {
    const ProgramShape shape{64, 136, 272, 128};
    F8Inputs in(shape);
    std::vector<int> targets;
    for (std::int64_t i = 0; i < shape.m; ++i) targets.push_back(static_cast<int>(5 * i % 130));
    TargetLogit target;
    target.a = in.a;
    target.table = in.w.row_slice(0, 130);
    target.scale = in.scale;
    target.targets = in.buffers.indices(targets);
    target.target_logit = in.buffers.vector(DType::f32, shape.m);
    in.run(target);
    LinearCrossEntropy op;
    op.a = in.a;
    op.w = in.w;
    op.scale = in.scale;
    op.target_logit = target.target_logit;
    op.exponentials = in.out(DType::bf16, shape.m, shape.n);
    op.sums = in.out(DType::f32, tiles(shape.n, shape.tile), 2 * shape.m);
    op.vocab = 130;
    op.tile = shape.tile;
    in.run(op);
    for (std::int64_t i = 0; i < shape.m; ++i) {
        INFO("row " << i);
        CHECK(in(op.exponentials, i, targets[static_cast<std::size_t>(i)]) == std::ldexp(1.0, -cross_entropy::kShift));
    }
}
