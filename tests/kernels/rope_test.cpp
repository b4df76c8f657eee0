// RopeBackward against rotation as multiplication of complex numbers; AttentionRopeBackward against the ops it fuses.
#include <complex>

#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr double kBase = 100;

double angle(std::int64_t position, std::int64_t pair, std::int64_t head_dim) {
    return static_cast<double>(position) *
           std::pow(kBase, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
}

View rope_table(Buffers& buffers, DType statistic, std::int64_t positions, std::int64_t head_dim) {
    const View table = buffers.matrix(statistic, positions, head_dim);
    for (std::int64_t p = 0; p < positions; ++p)
        for (std::int64_t i = 0; i < head_dim / 2; ++i) {
            buffers.set(table, p, 2 * i, std::cos(angle(p, i, head_dim)));
            buffers.set(table, p, 2 * i + 1, std::sin(angle(p, i, head_dim)));
        }
    return table;
}

const std::vector<int> kPositions{0, 1, 2, 3, 0, 6, 5};

RopeBackward rope_backward(Buffers& buffers, DType storage) {
    const auto rows = static_cast<std::int64_t>(kPositions.size());
    RopeBackward op;
    op.qkv = buffers.random(storage, rows, 32, -1, 1, 33);
    op.dqkv = buffers.random(storage, rows, 32, -1, 1, 35);
    op.positions = buffers.indices(kPositions);
    op.rope = rope_table(buffers, compute_of(storage), 7, 8);
    op.dot = buffers.vector(compute_of(storage), rows);
    op.rotated = 24;
    op.head_dim = 8;
    return op;
}

/// The fused op and the chain AttentionBackward, RopeBackward on the same inputs, forward already run.
struct Chain {
    Buffers buffers;
    AttentionRopeBackward fused;
    AttentionBackward attention;
    RopeBackward rope;

    explicit Chain(DType storage) {
        constexpr std::int64_t kBatch = 2, kSeqLen = 70, kHeads = 4, kKvHeads = 2, kHeadDim = 8;
        constexpr std::int64_t kRows = kBatch * kSeqLen, kColumns = (kHeads + 2 * kKvHeads) * kHeadDim;
        const DType statistic = compute_of(storage);
        const View qkv = buffers.random(storage, kRows, kColumns, -2, 2);
        const View dout = buffers.random(storage, kRows, kHeads * kHeadDim);
        const View o = buffers.matrix(storage, kRows, kHeads * kHeadDim);
        const View lse = buffers.matrix(statistic, kHeads, kRows);
        std::vector<int> starts, positions;
        for (int m = 0; m < kRows; ++m) {
            const int t = m % static_cast<int>(kSeqLen);
            starts.push_back(t < 30 ? 0 : 30);
            positions.push_back(t - starts.back());
        }
        const View doc_start = buffers.indices(starts);
        Attention forward;
        const auto shape = [](auto& op) {
            op.seq_len = kSeqLen;
            op.heads = kHeads;
            op.kv_heads = kKvHeads;
            op.head_dim = kHeadDim;
        };
        forward.qkv = attention.qkv = fused.qkv = rope.qkv = qkv;
        forward.o = o;
        attention.o = o;
        attention.dout = fused.dout = dout;
        forward.lse = lse;
        attention.lse = fused.lse = lse;
        forward.doc_start = attention.doc_start = fused.doc_start = doc_start;
        shape(forward);
        shape(attention);
        shape(fused);
        cpu::run(forward, buffers.memory());

        const View delta = buffers.matrix(statistic, kHeads, kRows);
        for (std::int64_t h = 0; h < kHeads; ++h)
            for (std::int64_t m = 0; m < kRows; ++m) {
                double sum = 0;
                for (std::int64_t j = h * kHeadDim; j < (h + 1) * kHeadDim; ++j)
                    sum += buffers.get(o, m, j) * buffers.get(dout, m, j);
                buffers.set(delta, h, m, sum);
            }
        fused.delta = delta;
        fused.positions = rope.positions = buffers.indices(positions);
        fused.rope = rope.rope = rope_table(buffers, statistic, kSeqLen, kHeadDim);
        fused.dqkv = buffers.matrix(storage, kRows, kColumns, kColumns + 3);
        fused.dot = buffers.matrix(statistic, kHeads + 2 * kKvHeads, kRows);
        const View dqkv = buffers.matrix(storage, kRows, kColumns);
        attention.dqkv = dqkv;
        rope.dqkv = dqkv;
        rope.dot = buffers.vector(statistic, kRows);
        rope.rotated = (kHeads + kKvHeads) * kHeadDim;
        rope.head_dim = kHeadDim;
    }
};

}  // namespace

// A rotation by the angle a multiplies first + i second by exp(i a); its transpose multiplies by exp(-i a). Each result
// is two products of numbers up to 1, and with bf16 storage rounded once more: 2 eps and half an eps.
TEST_CASE("RopeBackward turns pairs of q and k back and sums the row statistic first") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        Buffers buffers;
        const RopeBackward op = rope_backward(buffers, storage);
        const auto qkv = buffers.values(op.qkv), before = buffers.values(op.dqkv);
        cpu::run(op, buffers.memory());
        const double compute = epsilon(compute_of(storage));
        const double tolerance = 4 * compute + (storage == DType::bf16 ? epsilon(storage) : 0);
        for (std::int64_t m = 0; m < op.qkv.rows; ++m) {
            double expected_dot = 0;
            for (std::int64_t j = 0; j < 32; j += 2) {
                const auto at = static_cast<std::size_t>(m * 32 + j);
                expected_dot += qkv[at] * before[at] + qkv[at + 1] * before[at + 1];
                std::complex<double> expected(before[at], before[at + 1]);
                if (j < 24) expected *= std::polar(1.0, -angle(kPositions[static_cast<std::size_t>(m)], j % 8 / 2, 8));
                REQUIRE(std::abs(buffers.get(op.dqkv, m, j) - expected.real()) <= tolerance);
                REQUIRE(std::abs(buffers.get(op.dqkv, m, j + 1) - expected.imag()) <= tolerance);
                if (j >= 24) REQUIRE(buffers.get(op.dqkv, m, j) == before[at]);
            }
            REQUIRE(std::abs(buffers.get(op.dot, 0, m) - expected_dot) <= 32 * compute);
        }
    }
}

// In double the two paths differ in the order of sums alone. With bf16 storage the chain rounds dqkv twice, the fused
// op once: 1.5 eps of the largest; its dot is of rounded gradients, half an eps of Σ |terms|. A factor of the row, one
// of few bits, is that of its gradient and its dot.
TEST_CASE("AttentionRopeBackward is AttentionBackward, then RopeBackward, then the factor of the row") {
    for (const bool with_rstd : {false, true})
        for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
            INFO(name_of(storage) << (with_rstd ? ", rstd" : ""));
            Chain chain(storage);
            const auto factor = [&](std::int64_t m) { return with_rstd ? 1 + static_cast<double>(m % 8) / 8 : 1; };
            if (with_rstd) {
                chain.fused.rstd = chain.buffers.matrix(compute_of(storage), 1, chain.fused.qkv.rows);
                for (std::int64_t m = 0; m < chain.fused.qkv.rows; ++m)
                    chain.buffers.set(chain.fused.rstd, 0, m, factor(m));
            }
            const Memory memory = chain.buffers.memory();
            cpu::run(chain.attention, memory);
            const auto rotated = chain.buffers.values(chain.attention.dqkv);
            cpu::run(chain.rope, memory);
            cpu::run(chain.fused, memory);
            FinishRowSum finish;
            finish.partials = chain.fused.dot;
            finish.sum = chain.buffers.vector(compute_of(storage), chain.fused.dot.cols);
            cpu::run(finish, chain.buffers.memory());

            const auto qkv = chain.buffers.values(chain.fused.qkv);
            const double tolerance = storage == DType::f64   ? 1e-13
                                     : storage == DType::f32 ? 1e-5
                                                             : 1.5 * epsilon(storage);
            for (std::int64_t m = 0; m < chain.fused.qkv.rows; ++m) {
                double terms = 0;
                for (std::int64_t j = 0; j < chain.fused.qkv.cols; ++j) {
                    const auto at = static_cast<std::size_t>(m * chain.fused.qkv.cols + j);
                    terms += std::abs(qkv[at] * rotated[at]);
                    const double expected = factor(m) * chain.buffers.get(chain.rope.dqkv, m, j);
                    REQUIRE(std::abs(chain.buffers.get(chain.fused.dqkv, m, j) - expected) <=
                            tolerance * (1 + std::abs(expected)));
                }
                REQUIRE(std::abs(chain.buffers.get(finish.sum, 0, m) -
                                 factor(m) * chain.buffers.get(chain.rope.dot, 0, m)) <= 2 * tolerance * terms);
            }
            REQUIRE(chain.buffers.gaps_untouched(chain.fused.dqkv));
        }
}

// Row `slot` of dot is the statistic of that head alone, from the gradient before it is turned back.
TEST_CASE("AttentionRopeBackward's dot has one row a head, in the order of qkv's columns") {
    Chain chain(DType::f64);
    cpu::run(chain.attention, chain.buffers.memory());
    cpu::run(chain.fused, chain.buffers.memory());
    for (std::int64_t slot = 0; slot < chain.fused.dot.rows; ++slot)
        for (std::int64_t m = 0; m < chain.fused.dot.cols; ++m) {
            double expected = 0;
            for (std::int64_t j = slot * 8; j < (slot + 1) * 8; ++j)
                expected += chain.buffers.get(chain.fused.qkv, m, j) * chain.buffers.get(chain.attention.dqkv, m, j);
            REQUIRE(chain.buffers.get(chain.fused.dot, slot, m) == Approx(expected).margin(1e-13));
        }
}

TEST_CASE("RoPE's backward ops give the same bits for any number of threads") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        require_same_bits_for_any_thread_count([&](Buffers& buffers) { return rope_backward(buffers, storage); });
        require_same_bits_for_any_thread_count([&](Buffers& buffers) {
            Chain chain(storage);
            buffers = std::move(chain.buffers);
            return chain.fused;
        });
    }
}

TEST_CASE("a position outside the RoPE table is an error") {
    Buffers buffers;
    const RopeBackward op = rope_backward(buffers, DType::f32);
    buffers.set(op.positions, 0, 3, 7);
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()), "RopeBackward: positions[3] is 7, outside [0, 7)");
}
