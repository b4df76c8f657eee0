// LinearCrossEntropy against its formula in plain fp64 loops.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/math/cross_entropy.h"
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Checks the exponentials and sums of `op`, which has run on `in`. logit(i, j) is exact but for `logit_error`.
template <class In, class Logit>
void check_exponentials(In& in, const LinearCrossEntropy& op, DType storage, DType compute, const Logit& logit,
                        double logit_error) {
    const double limit = cross_entropy::kLimit * std::numbers::ln2, eps = epsilon(compute);
    const auto target = [&](std::int64_t i) { return in(op.target_logit, 0, i); };
    const auto distance = [&](std::int64_t i, std::int64_t j) { return logit(i, j) - target(i); };
    // Logit, distance and limit are rounded; an error of d is a relative error of its exponential.
    const auto error = [&](std::int64_t i, std::int64_t j) {
        return logit_error + eps * (std::fabs(logit(i, j)) + std::fabs(target(i)) + limit);
    };
    const double rounding = storage == compute ? 0 : epsilon(storage) / 2;
    check_all("exponentials", in.buffers, op.exponentials, [&](std::int64_t i, std::int64_t j) {
        if (j >= op.vocab) return Expectation{0, 0};
        const double e = std::ldexp(std::exp(std::min(distance(i, j), limit)), -cross_entropy::kShift);
        return Expectation{e, e * (error(i, j) + rounding + kArithmetic * eps)};
    });
    // The sums are of exponentials as stored, and of distances before the limit.
    check_all("sums", in.buffers, op.sums, [&](std::int64_t t, std::int64_t column) {
        const Range range = tile_range(t, op.tile, op.vocab);
        const std::int64_t i = column / 2;
        double sum = 0, magnitude = 0, strayed = 0;
        for (std::int64_t j = range.begin; j < range.end; ++j) {
            const double e = in(op.exponentials, i, j), term = column % 2 == 0 ? e : e * distance(i, j);
            sum += term;
            magnitude += std::fabs(term);
            if (column % 2 == 1) strayed += e * error(i, j);
        }
        return Expectation{sum, kSummation * eps * magnitude + strayed};
    });
}

}  // namespace

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
        // The second vocabulary leaves some tiles without a valid column if there are several tiles.
        for (const std::int64_t vocab : {shape.n, std::max<std::int64_t>(1, shape.n / 2 - 11)}) {
            plain_and_rstd<LinearCrossEntropy>(storage, compute, shape, [&](auto op, Inputs& in, const auto& factor) {
                check(op, in, storage, compute, shape, vocab, factor);
            });
        }
    });
}
