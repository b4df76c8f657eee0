// SumSquares, GradNorm, AdamW - over the flat segments of parameters, in blocks of fixed size.
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

/// Calls fn(Compute()) for the type of gradients, master weights and statistics.
template <class Fn>
void dispatch_gradient(const char* op, const char* operand, const View& view, Fn&& fn) {
    switch (view.dtype) {
        case DType::f64: return fn(double());
        case DType::f32: return fn(float());
        default: throw Error(text(op, ": operand ", operand, " is ", name_of(view.dtype), ", expected f64 or f32"));
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

/// rounding_bits of a block of the model's elements. The block begins at a multiple of four.
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

    /// Updates a run of elements; `keep` = 1 - lr weight_decay.
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
void execute(const SumSquares& op, const Memory& memory) {
    dispatch_gradient(SumSquares::name, "grad", op.grad, [&]<class Compute>(Compute) {
        const std::int64_t count = op.grad.cols;
        const Operands operands(SumSquares::name, memory);
        const auto* grad = operands.get<Compute>("grad", op.grad, 1, count);
        auto* sums = operands.get<double>("sums", op.sums, 1, SumSquares::sums_of(count));
#pragma omp parallel for
        for (std::int64_t first = 0; first < count; first += SumSquares::kBlock)
            sums[first / SumSquares::kBlock] =
                sum_of_squares(grad + first, std::min(SumSquares::kBlock, count - first));
    });
}

template <>
void execute(const GradNorm& op, const Memory& memory) {
    dispatch_gradient(GradNorm::name, "loss", op.loss, [&]<class Compute>(Compute) {
        const Operands operands(GradNorm::name, memory);
        const auto* sums = operands.get<double>("sums", op.sums, 1, op.sums.cols);
        const auto* loss = operands.get<Compute>("loss", op.loss, 1, 1);
        const auto* drop_above = operands.get<Compute>("drop_above", op.drop_above, 1, 1);
        auto* norm = operands.get<Compute>("norm", op.norm, 1, 1);
        auto* clip = operands.get<Compute>("clip", op.clip, 1, 1);
        auto* skip = operands.get<std::int32_t>("skip", op.skip, 1, 1);

        double total = 0;
        for (std::int64_t i = 0; i < op.sums.cols; ++i) total += sums[i];

        *norm = static_cast<Compute>(std::sqrt(total));
        *clip = op.max_norm > 0 ? static_cast<Compute>(std::min(1.0, op.max_norm / std::sqrt(total))) : Compute(1);
        *skip &= GradNorm::kNonFinite;
        if (!std::isfinite(*norm) || !std::isfinite(*loss)) *skip |= GradNorm::kNonFinite;
        if (*norm > *drop_above) *skip |= GradNorm::kDropped;
    });
}

template <>
void execute(const AdamW& op, const Memory& memory) {
    dispatch_gradient(AdamW::name, "grad", op.grad, [&]<class Compute>(Compute) {
        const std::int64_t count = op.grad.cols;
        require_parts(op);
        const Operands operands(AdamW::name, memory);
        const auto* grad = operands.get<Compute>("grad", op.grad, 1, count);
        auto* master = operands.get<Compute>("master", op.master, 1, count);
        const auto moment1 = Moment<Compute>::of("m", op.m, count, operands);
        const auto moment2 = Moment<Compute>::of("v", op.v, count, operands);
        const bool rounds = op.working.dtype == DType::bf16;
        auto* working_bf16 = rounds ? operands.get<Bf16>("working", op.working, 1, count) : nullptr;
        auto* working_full = rounds ? nullptr : operands.get_optional<Compute>("working", op.working, 1, count);
        const NormWeights<Compute> norms{operands.get_optional<Compute>("norms", op.norms, 1, op.norms.cols),
                                         op.first_norm};
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
            Compute m[kBlock], v[kBlock];
            moment1.load(first, number, m);
            moment2.load(first, number, v);
            Compute* w = master + first;
            update.run(grad + first, w, m, v, number, keep);
            if (rounds)
                fill_working(op.folds, norms, op.first + first, number, w, working_bf16 + first);
            else if (working_full)
                fill_working(op.folds, norms, op.first + first, number, w, working_full + first);
            RandomBlock random;
            if (moment1.rounded || moment2.rounded) random.fill(op.seed, step, op.first + first, number);
            moment1.store(first, number, m, random, 0);
            moment2.store(first, number, v, random, 16);
        }
    });
}

}  // namespace coda::cpu
