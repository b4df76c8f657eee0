// LinearRope's formula in plain fp64 loops.
#pragma once

#include <cmath>
#include <vector>

#include "tests/kernels/gemm_programs.h"

namespace coda::test {

/// Heads of kHead columns. `positions` are the rows' in `op.rope`. in(view, i, j) is an element of an operand,
/// product(i, j) one of a wᵀ with the row's factor.
template <class In, class Product>
struct ExpectedRope {
    const LinearRope& op;
    const std::vector<int>& positions;
    const In& in;
    const Product& product;

    double z(std::int64_t i, std::int64_t j) const { return product(i, j) + (op.bias ? in(op.bias, 0, j) : 0); }
    double rho(std::int64_t i, std::int64_t head) const {
        double squares = 0;
        for (std::int64_t j = head * kHead; j < (head + 1) * kHead; ++j) squares += z(i, j) * z(i, j);
        return 1 / std::sqrt(squares / kHead + op.eps);
    }
    double out(std::int64_t i, std::int64_t j) const {
        const double value = turned(i, j);
        if (j >= op.rotated) return value;
        const std::int64_t pair = j % kHead / 2;
        const int position = positions[static_cast<std::size_t>(i)];
        const double cosine = in(op.rope, position, 2 * pair), sine = in(op.rope, position, 2 * pair + 1);
        const double partner = turned(i, j % 2 == 0 ? j + 1 : j - 1);
        return j % 2 == 0 ? value * cosine - partner * sine : value * cosine + partner * sine;
    }

  private:
    /// What is rotated.
    double turned(std::int64_t i, std::int64_t j) const {
        if (!op.gain || j >= op.rotated) return z(i, j);
        return in(op.gain, j < op.queries ? 0 : 1, j % kHead) * rho(i, j / kHead) * z(i, j);
    }
};

/// Of a norm with this eps: n = gain rho z with |gain| <= 2 and rho <= 1/sqrt(eps) = 1.42, and an error of z grows by
/// at most 2 gain rho.
inline constexpr double kHeadEps = 0.5, kHeadGrowth = 6;

/// Checks out and, with a norm, z and rho. `absolute`: the error of z.
template <class In, class Product>
void check_rope(const LinearRope& op, const std::vector<int>& positions, const In& in, DType compute, double absolute,
                const Product& product) {
    const ExpectedRope<In, Product> expected{op, positions, in, product};
    check_close("out", in.buffers, op.out, compute, (op.gain ? kHeadGrowth : 1) * absolute,
                [&](std::int64_t i, std::int64_t j) { return expected.out(i, j); });
    if (!op.gain) return;
    check_close("pre", in.buffers, op.pre, compute, absolute,
                [&](std::int64_t i, std::int64_t j) { return expected.z(i, j); });
    check_close("rho", in.buffers, op.rho, compute, 2 * absolute,
                [&](std::int64_t head, std::int64_t i) { return expected.rho(i, head); });
}

}  // namespace coda::test
