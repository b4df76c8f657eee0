// AttentionBackward with the norm of q and k heads against the same op without it, whose gradients are then multiplied
// by the norm's Jacobian: d n_i / d z_j = gain_i (rho [i = j] - rho³ z_i z_j / hd).
#include "kernels/ops/attention/test_plain_backward.h"
#include "tests/catch.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;
using namespace coda::plain_backward;

namespace {

constexpr double kEps = 0.1;

/// The op with and without the norm on the same inputs.
struct Both {
    Buffers buffers;
    AttentionBackward normed, plain;

    explicit Both(DType storage) {
        const DType statistic = compute_of(storage);
        plain = normed = inputs(buffers, storage);
        add_outputs(plain, buffers, storage);
        normed.dqkv = buffers.matrix(storage, kRows, kColumns, kColumns + 3);
        normed.dot = buffers.matrix(statistic, kNormed + kKvHeads, kRows, kRows + 5);
        normed.rstd = buffers.matrix(statistic, 1, kRows);
        for (std::int64_t m = 0; m < kRows; ++m) buffers.set(normed.rstd, 0, m, factor(m));
        normed.gain = buffers.random(statistic, 2, kHeadDim, -2, 2);
        normed.pre = buffers.random(storage, kRows, kNormed * kHeadDim, -1, 1, kNormed * kHeadDim + 3);
        normed.rho = buffers.matrix(statistic, kNormed, kRows, kRows + 5);
        for (std::int64_t slot = 0; slot < kNormed; ++slot)
            for (std::int64_t m = 0; m < kRows; ++m) {
                double squares = 0;
                for (std::int64_t j = 0; j < kHeadDim; ++j) squares += z(m, slot, j) * z(m, slot, j);
                buffers.set(normed.rho, slot, m, 1 / std::sqrt(squares / kHeadDim + kEps));
            }
        normed.dgain = buffers.matrix(statistic, kNormed * normed.sum_tiles(kRows, kSeqLen), kHeadDim, kHeadDim + 3);
        normed.eps = kEps;
    }

    /// Few bits, so that a product with it is exact.
    static double factor(std::int64_t m) { return 1 + static_cast<double>(m % 8) / 8; }
    double z(std::int64_t m, std::int64_t slot, std::int64_t j) const {
        return buffers.get(normed.pre, m, slot * kHeadDim + j);
    }
    double dn(std::int64_t m, std::int64_t slot, std::int64_t j) const {
        return buffers.get(plain.dqkv, m, slot * kHeadDim + j);
    }
    double gain(std::int64_t slot, std::int64_t j) const { return buffers.get(normed.gain, slot < kHeads ? 0 : 1, j); }
    double rho(std::int64_t m, std::int64_t slot) const { return buffers.get(normed.rho, slot, m); }
};

}  // namespace

// In double the two differ only in the order of sums. With bf16 storage the gradient without the norm is rounded before
// the Jacobian here, and the other one is rounded once: 1.5 eps of the largest, times a gain up to 2, rho up to 3 and
// rstd up to 2. A sum of dn over 64 rows takes half an eps of its terms.
TEST_CASE("AttentionBackward with gain goes back through the norm of q and k heads; v heads have none") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        INFO(name_of(storage));
        Both ops(storage);
        cpu::run(ops.plain, ops.buffers.memory());
        cpu::run(ops.normed, ops.buffers.memory());
        const double tolerance = storage == DType::f64 ? 1e-13 : storage == DType::f32 ? 2e-5 : 3 * epsilon(storage);
        for (std::int64_t m = 0; m < kRows; ++m)
            for (std::int64_t slot = 0; slot < kNormed + kKvHeads; ++slot) {
                double dot = 0, terms = 0;
                for (std::int64_t j = 0; j < kHeadDim; ++j) {
                    double expected = slot < kNormed ? 0 : ops.dn(m, slot, j), size = 1;
                    for (std::int64_t i = 0; i < kHeadDim && slot < kNormed; ++i) {
                        const double rho = ops.rho(m, slot);
                        const double jacobian =
                            ops.gain(slot, i) *
                            ((i == j ? rho : 0) - rho * rho * rho * ops.z(m, slot, i) * ops.z(m, slot, j) / kHeadDim);
                        expected += ops.dn(m, slot, i) * jacobian;
                        size += std::abs(ops.dn(m, slot, i) * jacobian);
                    }
                    expected *= Both::factor(m);
                    REQUIRE(std::abs(ops.buffers.get(ops.normed.dqkv, m, slot * kHeadDim + j) - expected) <=
                            2 * tolerance * size);
                    const double value =
                        slot < kNormed ? ops.z(m, slot, j) : ops.buffers.get(ops.plain.qkv, m, slot * kHeadDim + j);
                    dot += value * expected;
                    terms += std::abs(value) * 2 * size;
                }
                REQUIRE(std::abs(ops.buffers.get(ops.normed.dot, slot, m) - dot) <= tolerance * terms);
            }
        const std::int64_t tiles = ceil_div(kSeqLen, AttentionBackward::kSumRows);
        for (std::int64_t row = 0; row < ops.normed.dgain.rows; ++row)
            for (std::int64_t j = 0; j < kHeadDim; ++j) {
                const std::int64_t slot = row / (kBatch * tiles), b = row / tiles % kBatch;
                const std::int64_t first = row % tiles * AttentionBackward::kSumRows;
                double sum = 0, terms = 1;
                for (std::int64_t t = first; t < std::min(kSeqLen, first + AttentionBackward::kSumRows); ++t) {
                    const std::int64_t m = b * kSeqLen + t;
                    const double term = ops.dn(m, slot, j) * ops.z(m, slot, j) * ops.rho(m, slot);
                    sum += term;
                    terms += std::abs(term);
                }
                REQUIRE(std::abs(ops.buffers.get(ops.normed.dgain, row, j) - sum) <= tolerance * terms);
            }
        for (const View& gapped : {View(ops.normed.dqkv), View(ops.normed.dot), View(ops.normed.dgain)})
            REQUIRE(ops.buffers.gaps_untouched(gapped));
    }
}

TEST_CASE("attention's gradient through the norm of heads has the same bits for any number of threads") {
    require_same_bits_for_any_thread_count([](Buffers& buffers) {
        Both ops(DType::bf16);
        buffers = std::move(ops.buffers);
        return ops.normed;
    });
}

TEST_CASE("AttentionBackward wants what belongs to gain with it") {
    Both ops(DType::f32);
    const auto run = [&](const AttentionBackward& op) { cpu::run(op, ops.buffers.memory()); };
    AttentionBackward op = ops.normed;
    op.gain = {};
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: pre, rho and dgain come with gain, which is missing");
    op = ops.normed;
    op.rho = {};
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: operand rho is missing");
    op = ops.normed;
    op.dgain.rows -= 1;
    REQUIRE_THROWS_WITH(run(op), Catch::Contains("operand dgain is (95, 8), expected (96, 8)"));
}
