// cost() against counts made by hand for one small op of each kind.
#include "kernels/cost.h"

#include "tests/catch.h"
#include "tests/kernels/fixture.h"

using namespace coda;
using namespace coda::test;

namespace {

void require_cost(const Op& op, double flops, double bytes) {
    INFO(name_of(op));
    const Cost found = cost(op);
    REQUIRE(found.flops == flops);
    REQUIRE(found.bytes == bytes);
}

}  // namespace

TEST_CASE("a GEMM program costs 2 M N K and its operands once") {
    Buffers b;
    Linear linear;  // M 3, N 5, K 7
    linear.a = b.matrix(DType::bf16, 3, 7, 8);
    linear.w = b.matrix(DType::bf16, 5, 7);
    linear.out = {b.matrix(DType::f32, 3, 5), Beta::overwrite};
    require_cost(linear, 2 * 3 * 5 * 7, 2 * 21 + 2 * 35 + 4 * 15);
    linear.out.beta = Beta::accumulate;
    require_cost(linear, 2 * 3 * 5 * 7, 2 * 21 + 2 * 35 + 2 * 4 * 15);
    linear.w = b.matrix(DType::bf16, 7, 5);
    linear.layout = WeightLayout::in_out;
    require_cost(linear, 2 * 3 * 5 * 7, 2 * 21 + 2 * 35 + 2 * 4 * 15);

    WeightGradient gradient;  // out 5, in 7, M 3
    gradient.dy = b.matrix(DType::bf16, 3, 5);
    gradient.x = b.matrix(DType::bf16, 3, 7);
    gradient.grad = {b.matrix(DType::f32, 5, 7), Beta::accumulate};
    gradient.scratch = b.vector(DType::u8, 1000);
    require_cost(gradient, 2 * 3 * 5 * 7, 2 * 15 + 2 * 21 + 2 * 4 * 35);
}

TEST_CASE("attention costs half the square, its backward pass 2.5 times that") {
    Buffers b;  // B 2, T 8, heads 4/2, hd 16: M 16, Nq 128
    const auto shape = [](auto& op) {
        op.seq_len = 8;
        op.heads = 4;
        op.kv_heads = 2;
        op.head_dim = 16;
    };
    const double forward_flops = 4.0 * 2 * 4 * 8 * 8 * 16 / 2;
    Attention forward;
    shape(forward);
    forward.qkv = b.matrix(DType::bf16, 16, 128);
    forward.o = b.matrix(DType::bf16, 16, 64);
    forward.lse = b.matrix(DType::f32, 4, 16);
    require_cost(forward, forward_flops, 2 * 16 * 128 + 2 * 16 * 64 + 4 * 64);
    forward.window = 2;  // half the square less half the square of the 6 tokens that are hidden from some: 14 of 32
    require_cost(forward, forward_flops * 14 / 32, 2 * 16 * 128 + 2 * 16 * 64 + 4 * 64);
    forward.window = 8;
    require_cost(forward, forward_flops, 2 * 16 * 128 + 2 * 16 * 64 + 4 * 64);

    AttentionBackward backward;
    shape(backward);
    backward.qkv = forward.qkv;
    backward.dout = b.matrix(DType::bf16, 16, 64);
    backward.lse = forward.lse;
    backward.delta = b.matrix(DType::f32, 4, 16);
    backward.positions = b.vector(DType::i32, 16);
    backward.rope = b.matrix(DType::f32, 8, 16);
    backward.dqkv = b.matrix(DType::bf16, 16, 128);
    backward.dot = b.matrix(DType::f32, 8, 16);
    backward.scratch = b.vector(DType::u8, 1000);
    require_cost(backward, 2.5 * forward_flops,
                 2 * 2 * 16 * 128 + 2 * 16 * 64 + 2 * 4 * 64 + 4 * 16 + 4 * 128 + 4 * 128);
    backward.window = 2;
    require_cost(backward, 2.5 * forward_flops * 14 / 32,
                 2 * 2 * 16 * 128 + 2 * 16 * 64 + 2 * 4 * 64 + 4 * 16 + 4 * 128 + 4 * 128);
}

TEST_CASE("a cache costs a prefill its rows, and the attention of a token a full context") {
    Buffers b;  // S 3, C 8, heads 4/2, hd 16: Nq 128
    const auto shape = [&](auto& op, std::int64_t rows) {
        op.context = 8;
        op.heads = 4;
        op.kv_heads = 2;
        op.head_dim = 16;
        op.qkv = b.matrix(DType::bf16, rows, 128);
        op.keys = b.matrix(DType::bf16, 3 * 2 * 8, 16);
        op.values = b.matrix(DType::bf16, 3 * 2 * 8, 16);
    };
    StoreKeyValue store;
    shape(store, 5);
    store.place = b.vector(DType::i32, 3);
    require_cost(store, 0, 2 * (2 * 5 * 2 * 2 * 16) + 12);

    DecodeAttention attention;
    shape(attention, 3);
    attention.lengths = b.vector(DType::i32, 3);
    attention.o = b.matrix(DType::bf16, 3, 64);
    attention.scratch = b.vector(DType::u8, 1000);
    require_cost(attention, 2 * 2.0 * 3 * 4 * 8 * 16, 2 * 3 * 128 + 2 * (2 * 3 * 2 * 8 * 16) + 12 + 2 * 3 * 64);
    attention.window = 5;
    require_cost(attention, 2 * 2.0 * 3 * 4 * 5 * 16, 2 * 3 * 128 + 2 * (2 * 3 * 2 * 5 * 16) + 12 + 2 * 3 * 64);
}

TEST_CASE("a table costs the rows that tokens touch") {
    Buffers b;
    for (const std::int64_t vocab : {1000, 2}) {
        const double rows = std::min<double>(static_cast<double>(vocab), 3);
        Embed forward;  // M 3, d 10
        forward.tokens = b.vector(DType::i32, 3);
        forward.table = b.matrix(DType::bf16, vocab, 10);
        forward.x = b.matrix(DType::bf16, 3, 10);
        forward.rstd = b.vector(DType::f32, 3);
        require_cost(forward, 2 * 30, 4 * 3 + rows * 20 + 2 * 30 + 4 * 3);
        EmbedBackward backward;
        backward.tokens = forward.tokens;
        backward.dx = forward.x;
        backward.grad = b.matrix(DType::f32, vocab, 10);
        backward.scratch = b.vector(DType::u8, 1000);
        require_cost(backward, 30, 4 * 3 + 2 * 30 + 2 * rows * 40);
        LinearRope rotation;
        rotation.a = b.matrix(DType::bf16, 3, 10);
        rotation.w = b.matrix(DType::bf16, 8, 10);
        rotation.out = b.matrix(DType::bf16, 3, 8);
        rotation.positions = forward.tokens;
        rotation.rope = b.matrix(DType::f32, vocab, 4);
        require_cost(rotation, 2 * 3 * 8 * 10, 2 * 30 + 2 * 80 + 2 * 24 + 4 * 3 + rows * 16);
        TargetLogit target;
        target.a = forward.x;
        target.table = forward.table;
        target.targets = forward.tokens;
        target.rstd = target.target_logit = forward.rstd;
        require_cost(target, 2 * 30, 2 * 30 + rows * 20 + 3 * 4 * 3);
    }
}

TEST_CASE("pointwise ops and reductions cost their arithmetic per element") {
    Buffers b;
    FinishCrossEntropy cross_entropy;  // M 3, V 100, 7 tiles
    cross_entropy.sums = b.matrix(DType::f32, 7, 6);
    cross_entropy.target_logit = cross_entropy.loss = b.vector(DType::f32, 3);
    cross_entropy.targets = b.vector(DType::i32, 3);
    require_cost(cross_entropy, 42, 4 * 42 + 3 * 12);
    cross_entropy.exponentials = b.matrix(DType::bf16, 3, 100);
    cross_entropy.scale = cross_entropy.dot = b.vector(DType::f32, 3);
    require_cost(cross_entropy, 42, 4 * 42 + 5 * 12 + 2 * 2 * 3);

    FinishRowSum row_sum;
    row_sum.partials = b.matrix(DType::f32, 4, 9);
    row_sum.sum = b.vector(DType::f32, 9);
    require_cost(row_sum, 36, 4 * 36 + 4 * 9);

    SumSquares squares;
    squares.grad = b.vector(DType::f32, 70000);
    squares.sums = b.vector(DType::f64, 2);
    require_cost(squares, 140000, 280000 + 16);

    GradNorm norm;
    norm.sums = squares.sums;
    norm.loss = norm.drop_above = norm.norm = norm.clip = b.scalar(DType::f32, 0);
    norm.skip = b.scalar(DType::i32, 0);
    require_cost(norm, 2, 16 + 4 * 4 + 2 * 4);

    AdamW adamw;
    adamw.grad = adamw.master = b.vector(DType::f32, 50);
    adamw.m = adamw.v = b.vector(DType::bf16, 50);
    adamw.working = adamw.m;
    adamw.lr = adamw.correction1 = adamw.correction2 = adamw.clip = norm.loss;
    adamw.step = adamw.skip = norm.skip;
    require_cost(adamw, 800, 200 + 400 + 2 * 2 * 100 + 100 + 6 * 4);

    QuantiseF8 quantise;  // M 32, N 16
    quantise.x = b.matrix(DType::bf16, 32, 16);
    quantise.rstd = b.vector(DType::f32, 32);
    quantise.codes.scale = quantise.codes.amax = norm.loss;
    quantise.codes.rows = b.matrix(DType::f8e4m3, 32, 16);
    require_cost(quantise, 1024, 2 * 512 + 4 * 32 + 4 + 512 + 2 * 4);
    quantise.codes.columns = b.matrix(DType::f8e4m3, 16, 32);
    require_cost(quantise, 1024, 2 * 512 + 4 * 32 + 4 + 2 * 512 + 2 * 4);

    CountF8 count;
    count.codes = quantise.codes.rows;
    count.counts = b.vector(DType::i32, 2);
    count.every = 5;  // 7 rows
    require_cost(count, 2 * 7 * 16, 7 * 16 + 8);

    UpdateScales scales;  // T 9, W 4, P 5
    scales.amax = scales.scales = b.vector(DType::f32, 9);
    scales.history = b.matrix(DType::f32, 4, 9);
    scales.step = scales.skip = norm.skip;
    scales.products = b.vector(DType::f32, 5);
    require_cost(scales, 36, 2 * 36 + (4 * 36 + 36) + 2 * 4 + 36 + 20);

    Zero zero;
    zero.out = squares.grad;
    require_cost(zero, 0, 280000);
}

TEST_CASE("what an op's time goes to") {
    REQUIRE(work_of(Linear{}) == Work::gemm);
    REQUIRE(work_of(LinearSwiglu{}) == Work::gemm);
    REQUIRE(work_of(WeightGradient{}) == Work::gemm);
    REQUIRE(work_of(Attention{}) == Work::attention);
    REQUIRE(work_of(AttentionBackward{}) == Work::attention);
    REQUIRE(work_of(DecodeAttention{}) == Work::attention);
    REQUIRE(work_of(StoreKeyValue{}) == Work::other);
    REQUIRE(work_of(FinishRowSum{}) == Work::other);
    REQUIRE(work_of(TargetLogit{}) == Work::other);
    REQUIRE(work_of(AdamW{}) == Work::other);
}
