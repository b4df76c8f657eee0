// The gradient norm, and AdamW over the flat parameters or a part of them. Notation: kernels/ops.h.
#pragma once

#include <vector>

#include "kernels/core/op.h"

namespace coda {

/// A matrix of the flat parameters that follows a norm, and that norm's weight. In the working copy the matrix is
/// master ⊙ norm_factor(gamma) (math/rms.h), with gamma over its columns. A GEMM of the norm's unweighted input with it
/// then gives the weighted result, in the backward pass too, without a weighted copy of the input or a factor in an
/// epilogue.
struct NormFold {
    std::int64_t first = 0;  // element of the matrix, rows contiguous
    std::int64_t rows = 0, cols = 0;
    std::int64_t gamma = 0;  // element of the weight of column 0

    std::int64_t end() const { return first + rows * cols; }
};

/// sums[i] = Σ grad² over elements [i kBlock, (i + 1) kBlock), in double and in a fixed order.
struct SumSquares {
    In<Vector> grad;   // (1, n) gradient
    Out<Vector> sums;  // (1, sums_of(n)) f64

    static constexpr Traits traits{Trait::flops, Trait::tolerance};
    static constexpr const char* name = "SumSquares";
    static constexpr auto operands = fields(field("grad", &SumSquares::grad), field("sums", &SumSquares::sums));

    static constexpr std::int64_t kBlock = 1 << 16;
    static constexpr std::int64_t sums_of(std::int64_t elements) { return ceil_div(elements, kBlock); }
    double flops() const { return 2 * static_cast<double>(grad.count()); }
    /// kBlock positive terms in another order: kBlock 2^-53 of the sum.
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType dtype) {
        if (dtype != DType::f64) return std::nullopt;
        return Tolerance{kBlock * 0x1p-53, kBlock * 0x1p-53};
    }
};

/// norm = sqrt(Σ sums), where `sums` are SumSquares's of the whole gradient; clip = min(1, max_norm / norm) (1 where
/// max_norm is 0). skip has the reasons not to update, 0 without one: kNonFinite where norm or loss is not finite,
/// which is sticky, so only the host clears it; kDropped where norm > drop_above, for this step only.
struct GradNorm {
    In<Vector> sums;        // (1, any) f64
    In<Scalar> loss;        // statistic
    In<Scalar> drop_above;  // statistic; infinity: no norm is too large; negative: every one is
    Out<Scalar> norm;       // statistic, before clipping
    Out<Scalar> clip;       // statistic
    InOut<Scalar> skip;     // i32, bits kNonFinite and kDropped
    double max_norm = 0;

    static constexpr std::int32_t kNonFinite = 1, kDropped = 2;

    static constexpr Traits traits{Trait::flops};
    static constexpr const char* name = "GradNorm";
    static constexpr auto operands = fields(field("sums", &GradNorm::sums), field("loss", &GradNorm::loss),
                                            field("drop_above", &GradNorm::drop_above), field("norm", &GradNorm::norm),
                                            field("clip", &GradNorm::clip), field("skip", &GradNorm::skip));

    double flops() const { return static_cast<double>(sums.count()); }
};

/// AdamW over a part of the flat parameters; nothing is written where skip is not 0. g = clip grad;
///   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g²;
///   master = master (1 - lr weight_decay) - lr (m correction1) / (sqrt(v correction2) + eps);
///   working = round(master), in folded matrices round(master ⊙ norm_factor(gamma)).
/// Folds read the updated gamma from `norms`, so the weights of norms are updated first, by an op of their own: they do
/// not decay, and matrices do. The update uses m and v before they are rounded. bf16 moments are rounded stochastically
/// by rounding_bits(seed, step, element) of math/random.h: the lower half for m, the upper for v. `element` counts from
/// the first one of the model, so a part has the bits that the whole would have there.
struct AdamW {
    In<Vector> grad;              // (1, n) gradient
    InOut<Vector> master;         // (1, n) master
    InOut<Vector> m;              // (1, n) master type, or bf16
    InOut<Vector> v;              // (1, n) master type, or bf16
    Out<Vector> working;          // (1, n) storage, optional: where it is absent, folds count for nothing
    In<Vector> norms;             // (1, any) master, weights of norms; optional without folds
    In<Scalar> lr;                // statistic
    In<Scalar> correction1;       // statistic: 1 / (1 - beta1^t)
    In<Scalar> correction2;       // statistic: 1 / (1 - beta2^t)
    In<Scalar> clip;              // statistic
    In<Scalar> step;              // i32: t, from 1
    In<Scalar> skip;              // i32
    std::int64_t first = 0;       // the model's element that is the first one here; a multiple of 4
    std::int64_t first_norm = 0;  // the model's element that is the first one of norms
    std::vector<NormFold> folds;  // by elements of the model, in order of `first`, not overlapping; any part of them
    double beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    std::uint64_t seed = 0;

    static constexpr Traits traits{Trait::flops, Trait::tolerance};
    static constexpr const char* name = "AdamW";
    static constexpr auto operands = fields(
        field("grad", &AdamW::grad), field("master", &AdamW::master), field("m", &AdamW::m), field("v", &AdamW::v),
        field("working", &AdamW::working), field("norms", &AdamW::norms), field("lr", &AdamW::lr),
        field("correction1", &AdamW::correction1), field("correction2", &AdamW::correction2),
        field("clip", &AdamW::clip), field("step", &AdamW::step), field("skip", &AdamW::skip));

    double flops() const { return 16 * static_cast<double>(grad.count()); }

    /// Elementwise fp32 updates: three roundings of 2^-24 in master and moments, relative to each one's own size.
    static constexpr Tolerance kUpdate{5e-7, 2e-6};
    /// Stochastic rounding with the same random bits: another bf16 neighbour, 2^-7 of the element at most, only where
    /// the last fp32 bit decides, 2^-14 of all elements.
    static constexpr Tolerance kStochastic{3e-4, 1e-2};
    static constexpr std::optional<Tolerance> tolerance(std::string_view operand, DType dtype) {
        if (operand == "working") return kExact;
        return dtype == DType::bf16 ? kStochastic : kUpdate;
    }
};

}  // namespace coda
