// LinearCrossEntropy against its formula in plain fp64 loops.
#include "kernels/ops/cross_entropy/test_exponentials.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("LinearCrossEntropy: exponentials and their partial sums") {
    const auto check = [](auto op, Inputs& in, DType storage, DType compute, const ProgramShape& shape,
                          std::int64_t vocab, const auto& factor) {
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        op.target_logit = in.buffers.random(compute, 1, shape.m, -4, 4);
        in.buffers.set(op.target_logit, 0, shape.m / 2, -150);  // in this row every logit is beyond the limit
        op.exponentials = in.out(storage, shape.m, shape.n);
        op.sums = in.out(compute, tiles(shape.n, shape.tile), 2 * shape.m);
        op.vocab = vocab;
        op.tile = shape.tile;
        in.run(op);

        const auto logit = [&](std::int64_t i, std::int64_t j) { return product(i, j) * factor(i); };
        check_exponentials(in, op, storage, compute, logit, 2 * product.error);  // rstd <= 2

        auto sums_only = op;  // evaluation: no exponentials stored, the same bits in the sums
        sums_only.exponentials = View{};
        sums_only.sums = in.out(compute, tiles(shape.n, shape.tile), 2 * shape.m);
        in.run(sums_only);
        CHECK((in.buffers.bits(sums_only.sums) == in.buffers.bits(op.sums)));
    };
    for_each_program_case([&](DType storage, DType compute, const ProgramShape& shape) {
        // The second vocabulary leaves some tiles without a valid column where there are several tiles.
        for (const std::int64_t vocab : {shape.n, std::max<std::int64_t>(1, shape.n / 2 - 11)}) {
            plain_and_rstd<LinearCrossEntropy>(storage, compute, shape, [&](auto op, Inputs& in, const auto& factor) {
                check(op, in, storage, compute, shape, vocab, factor);
            });
        }
    });
}
