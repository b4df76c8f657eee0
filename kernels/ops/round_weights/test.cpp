// RoundWeights against AdamW: the working copy that an update writes, and the one made of its masters, to the bit.
#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("RoundWeights makes the working copy that AdamW writes") {
    constexpr std::int64_t kRows = 24, kColumns = 40, kMatrix = kRows * kColumns, kCount = 2 * kMatrix + kColumns;
    for (const DType storage : {DType::bf16, DType::f32, DType::f64}) {
        const DType wide = storage == DType::f64 ? DType::f64 : DType::f32;
        Buffers b;
        const View master = b.random(wide, 1, kCount, -2, 2);
        b.set(master, 0, 2 * kMatrix + 3, 0);  // a weight of 0, whose factor is not
        const auto vector_part = [&](std::int64_t first, std::int64_t count) {
            View view = master;
            view.offset += first * size_of(wide);
            view.cols = view.ld = count;
            return view;
        };
        AdamW update;
        update.grad = b.random(wide, 1, 2 * kMatrix, -1, 1);
        update.master = vector_part(0, 2 * kMatrix);
        update.norms = vector_part(2 * kMatrix, kColumns);
        update.v = b.random(wide, 1, 2 * kMatrix, 0, 1);
        update.m = b.random(wide, 1, 2 * kMatrix, -1, 1);
        update.working = b.vector(storage, 2 * kMatrix);
        update.lr = b.scalar(wide, 0);  // the masters stay
        update.correction1 = update.correction2 = update.clip = b.scalar(wide, 1);
        update.step = b.scalar(DType::i32, 1);
        update.skip = b.scalar(DType::i32, 0);
        update.first_norm = 2 * kMatrix;
        update.folds = {{.first = kMatrix, .rows = kRows, .cols = kColumns, .gamma = 2 * kMatrix}};
        cpu::run(update, b.memory());
        const std::vector<double> expected = b.values(update.working);

        const auto part = [&](std::int64_t first, std::int64_t rows) {
            View view = master;
            view.offset += first * size_of(wide);
            view.rows = rows;
            view.cols = view.ld = kColumns;
            return view;
        };
        for (const bool folded : {false, true}) {
            RoundWeights op;
            op.master = part(folded ? kMatrix : 0, kRows);
            if (folded) op.gamma = part(2 * kMatrix, 1);
            op.working = b.matrix(storage, kRows, kColumns, kColumns + 8);
            cpu::run(op, b.memory());
            const auto first = expected.begin() + (folded ? kMatrix : 0);
            CHECK((b.values(op.working) == std::vector<double>(first, first + kMatrix)));
            CHECK(b.gaps_untouched(op.working));
        }
    }
}
