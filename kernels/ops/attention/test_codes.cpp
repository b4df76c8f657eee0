// Attention with codes of o, and AttentionBackward with codes of dqkv, against the same ops with the matrix in storage,
// and QuantiseF8 after them: the same bits.
#include "kernels/ops/attention/test_plain_backward.h"
#include "tests/catch.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;
using namespace coda::plain_backward;

namespace {

constexpr std::int64_t kGap = 5;

Rounded codes(Buffers& buffers, DType statistic, DType format, std::int64_t columns) {
    Rounded made;
    made.scale = buffers.scalar(statistic, 16);
    made.rows = buffers.matrix(format, kRows, columns, columns + kGap);
    made.columns = buffers.matrix(format, columns, kRows, kRows + kGap);
    made.columns.order = ColumnOrder::paired;
    made.amax = buffers.scalar(statistic, 0.125);
    return made;
}

/// The op with dqkv in storage and as codes on the same inputs.
struct Both {
    Buffers buffers;
    AttentionBackward stored, rounded;
    QuantiseF8 quantise;

    Both(DType storage, bool has_bias) {
        const DType statistic = compute_of(storage);
        stored = inputs(buffers, storage);
        stored.rstd = buffers.random(statistic, 1, kRows, 0.5, 2);
        if (has_bias) stored.bias = buffers.random(statistic, 1, kColumns, -3, 3);
        rounded = stored;
        add_outputs(stored, buffers, storage);
        add_outputs(rounded, buffers, storage);
        for (AttentionBackward* op : {&stored, &rounded})
            if (has_bias) op->dbias = buffers.matrix(statistic, AttentionBackward::sum_tiles(kRows, kSeqLen), kColumns);
        rounded.dqkv = codes(buffers, statistic, DType::f8e5m2, kColumns);
        quantise = {.x = stored.dqkv, .rstd = {}, .codes = codes(buffers, statistic, DType::f8e5m2, kColumns)};
    }
};

}  // namespace

TEST_CASE("Attention's codes equal QuantiseF8's codes of o") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        for (const bool transposed : {false, true}) {
            INFO(name_of(storage) << (transposed ? ", transposed" : ""));
            const DType statistic = compute_of(storage);
            const std::int64_t width = kHeads * kHeadDim;
            Buffers buffers;
            Attention op;
            op.qkv = buffers.random(storage, kRows, kColumns, -2, 2);
            op.o = buffers.matrix(storage, kRows, width);
            op.lse = buffers.matrix(statistic, kHeads, kRows);
            op.seq_len = kSeqLen;
            op.heads = kHeads;
            op.kv_heads = kKvHeads;
            op.head_dim = kHeadDim;
            Attention rounded = op;
            rounded.o = buffers.matrix(storage, kRows, width);
            rounded.lse = buffers.matrix(statistic, kHeads, kRows);
            rounded.o_codes = codes(buffers, statistic, DType::f8e4m3, width);
            QuantiseF8 quantise{.x = op.o, .rstd = {}, .codes = codes(buffers, statistic, DType::f8e4m3, width)};
            if (!transposed) rounded.o_codes.columns = quantise.codes.columns = {};
            cpu::run(op, buffers.memory());
            cpu::run(quantise, buffers.memory());
            cpu::run(rounded, buffers.memory());
            const auto same = [&](const View& a, const View& b) { return buffers.bits(a) == buffers.bits(b); };
            REQUIRE(same(rounded.o, op.o));
            REQUIRE(same(rounded.lse, op.lse));
            REQUIRE(same(rounded.o_codes.rows, quantise.codes.rows));
            REQUIRE(same(rounded.o_codes.amax, quantise.codes.amax));
            REQUIRE(buffers.gaps_untouched(rounded.o_codes.rows));
            if (!transposed) continue;
            REQUIRE(same(rounded.o_codes.columns, quantise.codes.columns));
            REQUIRE(buffers.gaps_untouched(rounded.o_codes.columns));
            rounded.o_codes.amax = {};
            REQUIRE_THROWS_WITH(cpu::run(rounded, buffers.memory()), "Attention: operand o_amax is missing");
        }
}

TEST_CASE("AttentionBackward's codes equal QuantiseF8's codes of dqkv") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        for (const bool has_bias : {false, true}) {
            INFO(name_of(storage) << (has_bias ? ", bias" : ""));
            Both ops(storage, has_bias);
            cpu::run(ops.stored, ops.buffers.memory());
            cpu::run(ops.quantise, ops.buffers.memory());
            cpu::run(ops.rounded, ops.buffers.memory());
            const auto same = [&](const View& a, const View& b) { return ops.buffers.bits(a) == ops.buffers.bits(b); };
            const Rounded &got = ops.rounded.dqkv.codes, &expected = ops.quantise.codes;
            REQUIRE(same(got.rows, expected.rows));
            REQUIRE(same(got.columns, expected.columns));
            REQUIRE(same(got.amax, expected.amax));
            REQUIRE(ops.buffers.get(got.amax, 0, 0) > 0.125);
            REQUIRE(same(ops.rounded.dot, ops.stored.dot));
            if (has_bias) REQUIRE(same(ops.rounded.dbias, ops.stored.dbias));
            REQUIRE(ops.buffers.gaps_untouched(got.rows));
            REQUIRE(ops.buffers.gaps_untouched(got.columns));
        }
}

TEST_CASE("attention's gradient as codes has the same bits for any number of threads") {
    require_same_bits_for_any_thread_count([](Buffers& buffers) {
        Both ops(DType::bf16, true);
        buffers = std::move(ops.buffers);
        return ops.rounded;
    });
}

TEST_CASE("AttentionBackward writes its gradient to storage or as codes, with all that belongs to them") {
    Both ops(DType::f32, false);
    const auto run = [&](const AttentionBackward& op) { cpu::run(op, ops.buffers.memory()); };
    AttentionBackward op = ops.rounded;
    static_cast<View&>(op.dqkv) = ops.stored.dqkv;
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: writes dqkv to storage or as codes, one of them");
    op.dqkv = {};
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: writes dqkv to storage or as codes, one of them");
    op = ops.rounded;
    op.dqkv.codes.columns = {};
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: operand dqkv_t is missing");
    op = ops.rounded;
    op.dqkv.codes.columns.dtype = DType::f8e4m3;
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: operand dqkv_t is f8e4m3, expected f8e5m2");
    op = ops.rounded;
    op.dqkv.codes.rows.dtype = DType::bf16;
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: operand dqkv is bf16, expected f8e5m2");
}
