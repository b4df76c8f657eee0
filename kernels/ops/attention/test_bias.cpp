// AttentionBackward with a bias against the same op without it: what dot leaves out, and the sums of the gradient.
#include "kernels/ops/attention/test_plain_backward.h"
#include "tests/catch.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;
using namespace coda::plain_backward;

namespace {

/// The op with and without the bias on the same inputs.
struct Both {
    Buffers buffers;
    AttentionBackward biased, plain;

    Both(DType storage, bool has_rstd) {
        const DType statistic = compute_of(storage);
        plain = inputs(buffers, storage);
        if (has_rstd) plain.rstd = buffers.random(statistic, 1, kRows, 0.5, 2);
        biased = plain;
        add_outputs(plain, buffers, storage);
        biased.dqkv = buffers.matrix(storage, kRows, kColumns, kColumns + 3);
        biased.dot = buffers.matrix(statistic, kSlots, kRows, kRows + 5);
        biased.bias = buffers.random(statistic, 1, kColumns, -3, 3);
        biased.dbias = buffers.matrix(statistic, AttentionBackward::sum_tiles(kRows, kSeqLen), kColumns, kColumns + 3);
    }
};

}  // namespace

// Both ops compute the same dqkv. Here sums begin with its stored elements, which bf16 has rounded by half an epsilon
// each; in double and fp32 only the order of the sums differs.
TEST_CASE("AttentionBackward leaves a bias out of dot, and sums the gradient over tiles of rows without rstd") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        for (const bool has_rstd : {false, true}) {
            INFO(name_of(storage) << (has_rstd ? ", rstd" : ""));
            Both ops(storage, has_rstd);
            const Buffers& buffers = ops.buffers;
            cpu::run(ops.plain, buffers.memory());
            cpu::run(ops.biased, buffers.memory());
            const double tolerance = storage == DType::f64 ? 1e-14 : storage == DType::f32 ? 4e-6 : epsilon(storage);
            for (std::int64_t m = 0; m < kRows; ++m)
                for (std::int64_t slot = 0; slot < kSlots; ++slot) {
                    double share = 0, terms = std::abs(buffers.get(ops.plain.dot, slot, m));
                    for (std::int64_t j = slot * kHeadDim; j < (slot + 1) * kHeadDim; ++j) {
                        const double dz = buffers.get(ops.plain.dqkv, m, j);
                        REQUIRE(buffers.get(ops.biased.dqkv, m, j) == dz);
                        share += buffers.get(ops.biased.bias, 0, j) * dz;
                        terms += std::abs(buffers.get(ops.biased.bias, 0, j) * dz);
                    }
                    const double dot = buffers.get(ops.plain.dot, slot, m) - share;
                    REQUIRE(std::abs(buffers.get(ops.biased.dot, slot, m) - dot) <= tolerance * terms);
                }
            const std::int64_t tiles = ceil_div(kSeqLen, AttentionBackward::kSumRows);
            for (std::int64_t row = 0; row < ops.biased.dbias.rows; ++row)
                for (std::int64_t j = 0; j < kColumns; ++j) {
                    const std::int64_t first = row % tiles * AttentionBackward::kSumRows;
                    double sum = 0, terms = 0;
                    for (std::int64_t t = first; t < std::min(kSeqLen, first + AttentionBackward::kSumRows); ++t) {
                        const std::int64_t m = row / tiles * kSeqLen + t;
                        const double rstd = has_rstd ? buffers.get(ops.biased.rstd, 0, m) : 1;
                        sum += buffers.get(ops.plain.dqkv, m, j) / rstd;
                        terms += std::abs(buffers.get(ops.plain.dqkv, m, j) / rstd);
                    }
                    REQUIRE(std::abs(buffers.get(ops.biased.dbias, row, j) - sum) <= tolerance * terms);
                }
            for (const View& gapped : {View(ops.biased.dqkv), View(ops.biased.dot), View(ops.biased.dbias)})
                REQUIRE(buffers.gaps_untouched(gapped));
        }
}

TEST_CASE("AttentionBackward without rope is that with a table of no rotation") {
    for (const DType storage : {DType::f64, DType::bf16}) {
        INFO(name_of(storage));
        Both ops(storage, true);
        Buffers& buffers = ops.buffers;
        for (std::int64_t row = 0; row < ops.biased.rope.rows; ++row)
            for (std::int64_t j = 0; j < kHeadDim; ++j) buffers.set(ops.biased.rope, row, j, j % 2 == 0 ? 1 : 0);
        const auto results = [&](const AttentionBackward& op) {
            cpu::run(op, buffers.memory());
            std::vector<double> all;
            for (const View& view : {View(op.dqkv), View(op.dot), View(op.dbias)})
                for (const double value : buffers.values(view)) all.push_back(value);
            return all;
        };
        const auto expected = results(ops.biased);
        AttentionBackward unrotated = ops.biased;
        unrotated.positions = unrotated.rope = {};
        add_outputs(unrotated, buffers, storage);
        unrotated.dbias = buffers.matrix(compute_of(storage), ops.biased.dbias.rows, kColumns);
        REQUIRE(results(unrotated) == expected);
    }
}

TEST_CASE("attention's gradient with a bias has the same bits for any number of threads") {
    require_same_bits_for_any_thread_count([](Buffers& buffers) {
        Both ops(DType::bf16, true);
        buffers = std::move(ops.buffers);
        return ops.biased;
    });
}

TEST_CASE("AttentionBackward wants what belongs to a bias with it") {
    Both ops(DType::f32, true);
    const auto run = [&](const AttentionBackward& op) { cpu::run(op, ops.buffers.memory()); };
    AttentionBackward op = ops.biased;
    op.bias = {};
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: dbias comes with bias, which is missing");
    op = ops.biased;
    op.dbias = {};
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: operand dbias is missing");
    op = ops.biased;
    op.gain = op.bias;
    REQUIRE_THROWS_WITH(run(op), "AttentionBackward: takes gain or bias, not both");
    op = ops.biased;
    op.bias.cols -= kHeadDim;
    REQUIRE_THROWS_WITH(run(op), Catch::Contains("operand bias is (1, 56), expected (1, 64)"));
}
