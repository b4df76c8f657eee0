// What LinearCrossEntropy stores, against its formula in plain fp64 loops: for the tests of all of its forms.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/math/cross_entropy.h"
#include "tests/kernels/gemm_programs.h"

namespace coda::test {

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

}  // namespace coda::test
