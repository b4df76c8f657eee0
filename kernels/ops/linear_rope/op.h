// The q, k, v projection and the rotation of q and k. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// K1, with rstd K7: z = acc rstd + bias. Adjacent column pairs of the first `rotated` columns of z are rotated by the
/// angle of (position, pair in head): (u, v) -> (u cos - v sin, v cos + u sin), with LLaMA's sign. Further columns (v
/// heads) are stored unchanged.
///
/// With FP8 factors z = undo acc + bias: they are f8e4m3, K is a multiple of 16, and a has been normalised, so rstd is
/// absent.
struct LinearRope {
    In<Matrix> a;              // (M, K) storage or FP8
    Factor w;                  // (Nq, K), rows [q heads | k heads | v heads]
    In<Vector> rstd;           // (1, M) statistic, optional (absent: 1)
    In<Vector> bias;           // (1, Nq) master, optional (absent: 0), ordered as the rows of w
    In<Vector> positions;      // (1, M) i32, each < rows of rope
    In<Matrix> rope;           // (positions, hd) statistic: columns 2i, 2i+1 = cos, sin of pair i
    Out<Matrix> out;           // (M, Nq) storage, columns as the rows of w
    std::int64_t rotated = 0;  // (H + Hk) hd
    std::int64_t head_dim = 0;

    static constexpr Traits traits{Trait::bytes_of,     Trait::result,       Trait::tolerance, Trait::takes_f8,
                                   Trait::storage_only, Trait::scalars_of_a, Trait::w};
    static constexpr const char* name = "LinearRope";
    static constexpr auto operands = std::tuple{field("a", &LinearRope::a),
                                                field("w", &LinearRope::w),
                                                field("rstd", &LinearRope::rstd),
                                                field("bias", &LinearRope::bias),
                                                field("positions", &LinearRope::positions),
                                                field("rope", &LinearRope::rope),
                                                field("out", &LinearRope::out)};
    static constexpr bool takes_f8 = true;
    static constexpr auto storage_only = std::tuple{field("rstd", &LinearRope::rstd)};

    View result() const { return out; }
    TensorScalars scalars_of_a() const { return {.times = rstd}; }
    std::optional<Tolerance> tolerance(std::string_view, DType) const {
        return is_f8(a.dtype) ? std::optional(f8_product_tolerance(a.cols, true)) : std::nullopt;
    }
    std::int64_t bytes_of(const View& operand) const {
        return &operand == &rope ? gathered_bytes(rope, positions) : operand.bytes();
    }
};

}  // namespace coda
