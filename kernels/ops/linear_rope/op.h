// The q, k, v projection, the norm of q and k heads, and their rotation. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/error.h"
#include "kernels/core/op.h"

namespace coda {

/// K1, with rstd K7: z = acc rstd + bias. Adjacent column pairs of the first `rotated` columns of z are rotated by the
/// angle of (position, pair in head): (u, v) -> (u cos - v sin, v cos + u sin), with LLaMA's sign. Further columns (v
/// heads) are stored unchanged.
///
/// With gain, every q and k head of z has an RMSNorm of its own (QK-norm, as in Qwen3): the op rotates gain ⊙ rho z,
/// where rho = 1/sqrt(mean over the head of z² + eps). For the backward pass it can store z and rho. gain is ordered as
/// the rows of a head in w, and goes without a bias: no model has both.
///
/// With FP8 factors z = undo acc + bias: they are f8e4m3, K is a multiple of 16, and a has been normalised, so rstd is
/// absent.
struct LinearRope {
    In<Matrix> a;              // (M, K) storage or FP8
    Factor w;                  // (Nq, K), rows [q heads | k heads | v heads]
    In<Vector> rstd;           // (1, M) statistic, optional (absent: 1)
    In<Vector> bias;           // (1, Nq) master, optional (absent: 0), ordered as the rows of w
    In<Matrix> gain;           // (2, hd) master, optional: of q heads and of k heads
    In<Vector> positions;      // (1, M) i32, each < rows of rope
    In<Matrix> rope;           // (positions, hd) statistic: columns 2i, 2i+1 = cos, sin of pair i
    Out<Matrix> out;           // (M, Nq) storage, columns as the rows of w
    Out<Matrix> pre;           // (M, rotated) storage, with gain, optional: z of the q and k heads
    Out<Matrix> rho;           // (H + Hk, M) statistic, with gain, optional
    std::int64_t rotated = 0;  // (H + Hk) hd
    std::int64_t head_dim = 0;
    std::int64_t queries = 0;  // H hd, with gain
    double eps = 0;            // with gain

    static constexpr Traits traits{Trait::bytes_of,     Trait::result,       Trait::tolerance, Trait::takes_f8,
                                   Trait::storage_only, Trait::scalars_of_a, Trait::w};
    static constexpr const char* name = "LinearRope";
    static constexpr auto operands =
        fields(field("a", &LinearRope::a), field("w", &LinearRope::w), field("rstd", &LinearRope::rstd),
               field("bias", &LinearRope::bias), field("gain", &LinearRope::gain),
               field("positions", &LinearRope::positions), field("rope", &LinearRope::rope),
               field("out", &LinearRope::out), field("pre", &LinearRope::pre), field("rho", &LinearRope::rho));
    static constexpr bool takes_f8 = true;
    static constexpr auto storage_only = fields(field("rstd", &LinearRope::rstd));

    View result() const { return out; }
    TensorScalars scalars_of_a() const { return {.times = rstd}; }
    std::optional<Tolerance> tolerance(std::string_view, DType) const {
        return is_f8(a.dtype) ? std::optional(f8_product_tolerance(a.cols, true)) : std::nullopt;
    }
    std::int64_t bytes_of(const View& operand) const {
        return &operand == &rope ? gathered_bytes(rope, positions) : operand.bytes();
    }
};

/// Throws Error where the heads do not fit the columns of the GEMM, or what belongs to their norm is there without it.
inline void require_heads(const LinearRope& op, std::int64_t n) {
    require(op.head_dim > 0 && op.head_dim % 2 == 0 && n % op.head_dim == 0, op.name, ": head_dim ", op.head_dim,
            " must be even and divide the ", n, " output columns");
    require(op.rotated >= 0 && op.rotated <= n && op.rotated % op.head_dim == 0, op.name, ": rotated ", op.rotated,
            " must be whole heads of ", op.head_dim, " within ", n, " columns");
    require(!op.gain || !op.bias, op.name, ": takes a bias or gain, not both");
    require(op.gain || (!op.pre && !op.rho), op.name, ": pre and rho come with gain, which is missing");
    require(!op.gain || (op.queries >= 0 && op.queries <= op.rotated && op.queries % op.head_dim == 0), op.name,
            ": queries ", op.queries, " must be whole heads of ", op.head_dim, " within ", op.rotated, " columns");
}

}  // namespace coda
