// AttentionBackward with rope against the same op without it, whose gradients are rotated back by complex
// multiplication.
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

/// AttentionBackward with rope and delta, and without them, on the same inputs, forward already run.
struct Chain {
    Buffers buffers;
    AttentionBackward fused, attention;
    std::vector<int> positions;

    explicit Chain(DType storage) {
        constexpr std::int64_t kBatch = 2, kSeqLen = 70, kHeads = 4, kKvHeads = 2, kHeadDim = 8;
        constexpr std::int64_t kRows = kBatch * kSeqLen, kColumns = (kHeads + 2 * kKvHeads) * kHeadDim;
        const DType statistic = compute_of(storage);
        const View qkv = buffers.random(storage, kRows, kColumns, -2, 2);
        const View dout = buffers.random(storage, kRows, kHeads * kHeadDim);
        const View o = buffers.matrix(storage, kRows, kHeads * kHeadDim);
        const View lse = buffers.matrix(statistic, kHeads, kRows);
        std::vector<int> starts;
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
        forward.qkv = attention.qkv = fused.qkv = qkv;
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
        fused.positions = buffers.indices(positions);
        fused.rope = rope_table(buffers, statistic, kSeqLen, kHeadDim);
        fused.dqkv = buffers.matrix(storage, kRows, kColumns, kColumns + 3);
        fused.dot = buffers.matrix(statistic, kHeads + 2 * kKvHeads, kRows);
        attention.dqkv = buffers.matrix(storage, kRows, kColumns);
    }

    /// One pair of row m of a gradient, rotated back. A rotation by the angle a multiplies first + i second by exp(i
    /// a), so its transpose multiplies by exp(-i a). v columns are not rotated.
    std::complex<double> turned_back(const std::vector<double>& gradient, std::int64_t m, std::int64_t j) const {
        const std::int64_t head_dim = fused.head_dim, rotated = (fused.heads + fused.kv_heads) * head_dim;
        const auto at = static_cast<std::size_t>(m * fused.qkv.cols + j / 2 * 2);
        const std::complex<double> pair(gradient[at], gradient[at + 1]);
        if (j >= rotated) return pair;
        return pair * std::polar(1.0, -angle(positions[static_cast<std::size_t>(m)], j % head_dim / 2, head_dim));
    }
};

}  // namespace

// In double the two differ only in the order of sums. With bf16 storage, the gradient without rope is rounded before it
// is rotated back here; the other is rounded once: 1.5 eps of the largest. The op computes dot from gradients before
// rounding, this test from rounded ones: half an eps of Σ |terms|. The row's rstd, a number of few bits, multiplies
// both its gradient and its dot.
TEST_CASE("AttentionBackward with rope rotates pairs of q and k back, sums the row statistic first, scales rows") {
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
            cpu::run(chain.fused, memory);
            FinishRowSum finish;
            finish.partials = chain.fused.dot;
            finish.sum = chain.buffers.vector(compute_of(storage), chain.fused.dot.cols);
            cpu::run(finish, chain.buffers.memory());

            const auto rotated = chain.buffers.values(chain.attention.dqkv);
            const auto qkv = chain.buffers.values(chain.fused.qkv);
            const double tolerance = storage == DType::f64   ? 1e-13
                                     : storage == DType::f32 ? 1e-5
                                                             : 1.5 * epsilon(storage);
            for (std::int64_t m = 0; m < chain.fused.qkv.rows; ++m) {
                double dot = 0, terms = 0;
                for (std::int64_t j = 0; j < chain.fused.qkv.cols; ++j) {
                    const auto at = static_cast<std::size_t>(m * chain.fused.qkv.cols + j);
                    dot += qkv[at] * rotated[at];
                    terms += std::abs(qkv[at] * rotated[at]);
                    const std::complex<double> pair = chain.turned_back(rotated, m, j);
                    const double expected = factor(m) * (j % 2 == 0 ? pair.real() : pair.imag());
                    REQUIRE(std::abs(chain.buffers.get(chain.fused.dqkv, m, j) - expected) <=
                            tolerance * (1 + std::abs(expected)));
                }
                REQUIRE(std::abs(chain.buffers.get(finish.sum, 0, m) - factor(m) * dot) <= 2 * tolerance * terms);
            }
            REQUIRE(chain.buffers.gaps_untouched(chain.fused.dqkv));
        }
}

// The op computes delta from o, or is given it. Both give the same numbers here, where everything is double.
TEST_CASE("AttentionBackward takes o in place of delta") {
    Chain chain(DType::f64);
    AttentionBackward from_o = chain.fused;
    from_o.o = chain.attention.o;
    from_o.delta = {};
    from_o.dqkv = chain.buffers.matrix(DType::f64, from_o.qkv.rows, from_o.qkv.cols);
    cpu::run(chain.fused, chain.buffers.memory());
    cpu::run(from_o, chain.buffers.memory());
    const auto expected = chain.buffers.values(chain.fused.dqkv), got = chain.buffers.values(from_o.dqkv);
    for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - expected[i]) <= 1e-13);
}

// Row `slot` of dot is the statistic of only that head, from the gradient before it is rotated back.
TEST_CASE("AttentionBackward's dot has one row per head, in the order of qkv's columns") {
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

TEST_CASE("attention's gradient through RoPE has the same bits for any number of threads") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        require_same_bits_for_any_thread_count([&](Buffers& buffers) {
            Chain chain(storage);
            buffers = std::move(chain.buffers);
            return chain.fused;
        });
}

TEST_CASE("AttentionBackward names what does not fit together") {
    Chain chain(DType::f32);
    const auto run = [&](const AttentionBackward& op) { cpu::run(op, chain.buffers.memory()); };
    AttentionBackward op = chain.fused;
    op.o = chain.attention.o;
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: takes o or delta, one of them");
    op.o = op.delta = {};
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: takes o or delta, one of them");
    op = chain.fused;
    op.rope = {};
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: positions and gain come with rope, which is missing");
    op = chain.fused;
    op.positions = {};
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: operand positions is missing");
    op = chain.fused;
    op.dot = {};
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: rope, rstd and bias come with dot, which is missing");
    chain.buffers.set(chain.fused.positions, 0, 3, static_cast<double>(chain.fused.rope.rows));
    REQUIRE_THROWS_WITH(run(chain.fused), "AttentionBackward: positions[3] is 70, outside [0, 70)");
}
