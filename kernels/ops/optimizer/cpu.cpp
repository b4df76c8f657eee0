// GradNorm, AdamW - over the flat segments of parameters, in blocks of fixed size.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/cpu/access.h"
#include "kernels/cpu/execute.h"
#include "kernels/math/random.h"
#include "kernels/ops/optimizer/norm_fold.h"
#include "kernels/ops/optimizer/op.h"

namespace coda::cpu {
namespace {

/// Calls fn(Compute()) for the type of gradients and master weights.
template <class Fn>
void dispatch_gradient(const char* op, const View& grad, Fn&& fn) {
    switch (grad.dtype) {
        case DType::f64: return fn(double());
        case DType::f32: return fn(float());
        default: throw Error(text(op, ": operand grad is ", name_of(grad.dtype), ", expected f64 or f32"));
    }
}

template <class Compute>
double sum_of_squares(const Compute* values, std::int64_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) {
        const auto value = static_cast<double>(values[i]);
        sum += value * value;
    }
    return sum;
}

constexpr std::int64_t kBlock = 2048;  // parameters that AdamW updates at a time

/// rounding_bits of a block of elements. The block begins at a multiple of four.
struct RandomBlock {
    std::uint32_t word[kBlock];

    void fill(std::uint64_t seed, std::uint64_t step, std::int64_t first, std::int64_t count) {
#pragma omp simd
        for (std::int64_t group = 0; group < (count + 3) / 4; ++group) {
            const Random4 random = philox(seed, step, static_cast<std::uint64_t>(first / 4 + group));
            for (int i = 0; i < 4; ++i) word[4 * group + i] = random.word[i];
        }
    }
};

/// A moment (m or v) as stored: in the master type, or in bf16.
template <class Compute>
struct Moment {
    Compute* full = nullptr;
    Bf16* rounded = nullptr;

    static Moment of(const char* operand, const View& view, std::int64_t count, const Operands& operands) {
        if (view.dtype == DType::bf16) return {nullptr, operands.get<Bf16>(operand, view, 1, count)};
        return {operands.get<Compute>(operand, view, 1, count), nullptr};
    }

    void load(std::int64_t first, std::int64_t count, Compute* to) const {
        for (std::int64_t i = 0; i < count; ++i) to[i] = full ? full[first + i] : Compute(float(rounded[first + i]));
    }

    /// Rounds with the bits of `random` from bit `shift` up.
    void store(std::int64_t first, std::int64_t count, const Compute* from, const RandomBlock& random,
               int shift) const {
        if (full) {
            std::copy(from, from + count, full + first);
            return;
        }
        for (std::int64_t i = 0; i < count; ++i) {
            const auto value = static_cast<float>(from[i]);
            // Random bits below an infinity's mantissa would make it a NaN.
            rounded[first + i].bits = std::abs(value) <= std::numeric_limits<float>::max()
                                          ? stochastic_bf16(value, random.word[i] >> shift)
                                          : Bf16(value).bits;
        }
    }
};

template <class Compute>
struct Update {
    Compute beta1, beta2, complement1,
        complement2;  // 1 - beta, computed in double: in float, beta2 = 0.999 would put it off by 1e-5
    Compute eps, lr, correction1, correction2, clip;

    /// Updates one run of elements with the same decay; `keep` = 1 - lr decay.
    void run(const Compute* grad, Compute* master, Compute* m, Compute* v, std::int64_t count, Compute keep) const {
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) {
            const Compute g = clip * grad[i];
            m[i] = beta1 * m[i] + complement1 * g;
            v[i] = beta2 * v[i] + complement2 * g * g;
            master[i] = master[i] * keep - lr * (m[i] * correction1) / (std::sqrt(v[i] * correction2) + eps);
        }
    }
};

}  // namespace

template <>
void execute(const GradNorm& op, const Memory& memory) {
    constexpr std::int64_t kNormBlock = 1 << 16;
    dispatch_gradient(GradNorm::name, op.grad, [&]<class Compute>(Compute) {
        const std::int64_t count = op.grad.cols;
        const Operands operands(GradNorm::name, memory);
        const auto* grad = operands.get<Compute>("grad", op.grad, 1, count);
        const auto* loss = operands.get<Compute>("loss", op.loss, 1, 1);
        const auto* drop_above = operands.get<Compute>("drop_above", op.drop_above, 1, 1);
        auto* norm = operands.get<Compute>("norm", op.norm, 1, 1);
        auto* clip = operands.get<Compute>("clip", op.clip, 1, 1);
        auto* skip = operands.get<std::int32_t>("skip", op.skip, 1, 1);

        std::vector<double> sums(static_cast<std::size_t>(ceil_div(count, kNormBlock)));
#pragma omp parallel for
        for (std::int64_t first = 0; first < count; first += kNormBlock)
            sums[static_cast<std::size_t>(first / kNormBlock)] =
                sum_of_squares(grad + first, std::min(kNormBlock, count - first));
        double total = 0;
        for (const double sum : sums) total += sum;

        *norm = static_cast<Compute>(std::sqrt(total));
        *clip = op.max_norm > 0 ? static_cast<Compute>(std::min(1.0, op.max_norm / std::sqrt(total))) : Compute(1);
        *skip &= GradNorm::kNonFinite;
        if (!std::isfinite(*norm) || !std::isfinite(*loss)) *skip |= GradNorm::kNonFinite;
        if (*norm > *drop_above) *skip |= GradNorm::kDropped;
    });
}

template <>
void execute(const AdamW& op, const Memory& memory) {
    dispatch_gradient(AdamW::name, op.grad, [&]<class Compute>(Compute) {
        const std::int64_t count = op.grad.cols;
        require(op.decayed >= 0 && op.decayed <= count, AdamW::name, ": decayed ", op.decayed, " is outside [0, ",
                count, "], the elements of grad");
        require_folds(op);
        const Operands operands(AdamW::name, memory);
        const auto* grad = operands.get<Compute>("grad", op.grad, 1, count);
        auto* master = operands.get<Compute>("master", op.master, 1, count);
        const auto moment1 = Moment<Compute>::of("m", op.m, count, operands);
        const auto moment2 = Moment<Compute>::of("v", op.v, count, operands);
        const bool rounds = op.working.dtype == DType::bf16;
        auto* working_bf16 = rounds ? operands.get<Bf16>("working", op.working, 1, count) : nullptr;
        auto* working_full = rounds ? nullptr : operands.get_optional<Compute>("working", op.working, 1, count);
        const auto scalar = [&](const char* operand, const View& view) {
            return *operands.get<Compute>(operand, view, 1, 1);
        };
        const Update<Compute> update{.beta1 = static_cast<Compute>(op.beta1),
                                     .beta2 = static_cast<Compute>(op.beta2),
                                     .complement1 = static_cast<Compute>(1 - op.beta1),
                                     .complement2 = static_cast<Compute>(1 - op.beta2),
                                     .eps = static_cast<Compute>(op.eps),
                                     .lr = scalar("lr", op.lr),
                                     .correction1 = scalar("correction1", op.correction1),
                                     .correction2 = scalar("correction2", op.correction2),
                                     .clip = scalar("clip", op.clip)};
        const auto step = static_cast<std::uint64_t>(*operands.get<std::int32_t>("step", op.step, 1, 1));
        if (*operands.get<std::int32_t>("skip", op.skip, 1, 1) != 0) return;
        const auto keep = Compute(1) - update.lr * static_cast<Compute>(op.weight_decay);

#pragma omp parallel for
        for (std::int64_t first = 0; first < count; first += kBlock) {
            const std::int64_t number = std::min(kBlock, count - first);
            const std::int64_t decayed = std::clamp<std::int64_t>(op.decayed - first, 0, number);
            Compute m[kBlock], v[kBlock];
            moment1.load(first, number, m);
            moment2.load(first, number, v);
            const Compute* g = grad + first;
            Compute* w = master + first;
            update.run(g, w, m, v, decayed, keep);
            update.run(g + decayed, w + decayed, m + decayed, v + decayed, number - decayed, Compute(1));
            RandomBlock random;
            if (moment1.rounded || moment2.rounded) random.fill(op.seed, step, first, number);
            moment1.store(first, number, m, random, 0);
            moment2.store(first, number, v, random, 16);
        }

        if (!op.working) return;
        // The fold reads the updated weights of norms, so it comes after them.
        const NormWeights<Compute> norms{master, 0};
#pragma omp parallel for
        for (std::int64_t first = 0; first < count; first += kBlock) {
            const std::int64_t number = std::min(kBlock, count - first);
            if (rounds)
                fill_working(op.folds, norms, first, number, master + first, working_bf16 + first);
            else
                fill_working(op.folds, norms, first, number, master + first, working_full + first);
        }
    });
}

}  // namespace coda::cpu
