// adamw - the update of every parameter; nothing is written where skip is not 0
//
//   g = clip grad;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g²
//   master = master (1 - lr weight_decay) - lr (m correction1) / (sqrt(v correction2) + eps)
//   working = round(master), in the columns of a folded matrix round(master norm_factor(gamma)); optional
//
//   grad, master (n) fp32; m, v (n) both fp32 or both bf16; working (n) bf16; n a multiple of 8. bf16 moments are
//   rounded stochastically by rounding_bits (math/random.h), with one philox per thread, for its four elements. Folds
//   and random bits go by elements of the model, of which `origin` vectors come before these.
//
// A thread takes four neighbouring elements: 16 bytes of each fp32 vector and 8 of each bf16 one, so every access of a
// warp is one run of whole lines.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/math/random.h"
#include "kernels/math/rms.h"
#include "kernels/ops/optimizer/norm_fold.h"
#include "kernels/ops/optimizer/op.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256;

/// NormFold counted in vectors of four elements, with all rows as one run; gamma from the first of norms on.
struct Fold {
    unsigned first, count, cols, gamma;

    __device__ unsigned end() const { return first + count; }
};
struct Folds {
    int number = 0;
    Fold fold[limits::kMaxFolds];
};

struct AdamWArguments {
    const float4* grad;
    float4* master;
    void* m;  // float4 or uint2 (four bf16)
    void* v;  // as m
    uint2* working;
    const float* lr;
    const float* correction1;
    const float* correction2;
    const float* clip;
    const std::int32_t* step;
    const std::int32_t* skip;
    const float4* norms;
    std::int64_t vectors, origin;
    float beta1, beta2, complement1, complement2, eps, weight_decay;
    std::uint64_t seed;
};

struct Four {
    float value[4];
};

__device__ Four load(const float4* from) {
    const float4 four = __ldcs(from);
    return {{four.x, four.y, four.z, four.w}};
}

__device__ Four load(const uint2* from) {
    const uint2 bits = __ldcs(from);
    return {{__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u), __uint_as_float(bits.y << 16),
             __uint_as_float(bits.y & 0xffff0000u)}};
}

__device__ void store(float4* to, const Four& four) {
    __stcs(to, float4{four.value[0], four.value[1], four.value[2], four.value[3]});
}

/// Random bits below an infinity's mantissa would make it a NaN, so non-finite values are truncated instead. NaN stays
/// NaN.
__device__ unsigned round_moment(float value, std::uint32_t random) {
    const unsigned word = __float_as_uint(value);
    if (isfinite(value)) return stochastic_bf16(value, random);
    return word >> 16 | (isnan(value) ? 0x40u : 0u);
}

/// Rounds with the bits of `random` from bit `shift` up.
__device__ void store_rounded(uint2* to, const Four& four, const Random4& random, int shift) {
    unsigned bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i] = round_moment(four.value[i], random.word[i] >> shift);
    __stcs(to, uint2{bits[0] | bits[1] << 16, bits[2] | bits[3] << 16});
}

/// Factors of the model's vector `at` in the working copy, 1 outside folds. `block` is the block's first vector: the
/// search begins there, in the same way for all threads.
__device__ Four norm_factors(const Folds& folds, const float4* norms, unsigned block, unsigned at) {
    int low = 0, high = folds.number;  // the first fold that ends after `block`
    while (low < high) {
        const int middle = (low + high) / 2;
        if (folds.fold[middle].end() <= block) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    while (low < folds.number && folds.fold[low].end() <= at) ++low;
    if (low == folds.number || at < folds.fold[low].first) return {{1, 1, 1, 1}};
    const Fold fold = folds.fold[low];
    const float4 gamma = norms[fold.gamma + (at - fold.first) % fold.cols];
    return {{norm_factor(gamma.x), norm_factor(gamma.y), norm_factor(gamma.z), norm_factor(gamma.w)}};
}

template <class Moment, bool kWorking>
__global__ __launch_bounds__(kThreads) void adamw(const AdamWArguments arguments, const __grid_constant__ Folds folds) {
    const std::int64_t block = std::int64_t{blockIdx.x} * kThreads, at = block + threadIdx.x;
    if (at >= arguments.vectors) return;
    auto* const m_at = static_cast<Moment*>(arguments.m) + at;
    auto* const v_at = static_cast<Moment*>(arguments.v) + at;
    const Four grad = load(arguments.grad + at);
    Four master = load(arguments.master + at), m = load(m_at), v = load(v_at);
    const float lr = *arguments.lr, clip = *arguments.clip;
    const float correction1 = *arguments.correction1, correction2 = *arguments.correction2;
    Four factor;
    if constexpr (kWorking)
        factor = norm_factors(folds, arguments.norms, static_cast<unsigned>(arguments.origin + block),
                              static_cast<unsigned>(arguments.origin + at));
    if (*arguments.skip != 0) return;

    const float keep = 1.0f - lr * arguments.weight_decay;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float g = clip * grad.value[i];
        m.value[i] = arguments.beta1 * m.value[i] + arguments.complement1 * g;
        v.value[i] = arguments.beta2 * v.value[i] + arguments.complement2 * g * g;
        master.value[i] = master.value[i] * keep -
                          lr * (m.value[i] * correction1) / (sqrtf(v.value[i] * correction2) + arguments.eps);
    }
    store(arguments.master + at, master);
    if constexpr (kWorking)
        __stcs(arguments.working + at,
               uint2{pack_bf16(master.value[0] * factor.value[0], master.value[1] * factor.value[1]),
                     pack_bf16(master.value[2] * factor.value[2], master.value[3] * factor.value[3])});
    if constexpr (std::is_same_v<Moment, float4>) {
        store(m_at, m);
        store(v_at, v);
    } else {
        const auto step = static_cast<std::uint64_t>(*arguments.step);
        const Random4 random = philox(arguments.seed, step, static_cast<std::uint64_t>(arguments.origin + at));
        store_rounded(m_at, m, random, 0);
        store_rounded(v_at, v, random, 16);
    }
}

Folds folds_of(const AdamW& op) {
    require_parts(op);
    require(static_cast<std::int64_t>(op.folds.size()) <= limits::kMaxFolds, op.name, ": ", op.folds.size(),
            " folded matrices, the kernel takes up to ", limits::kMaxFolds);
    Folds folds;
    for (const NormFold& fold : op.folds) {
        require(fold.first % 4 == 0 && fold.cols % 4 == 0 && (fold.gamma - op.first_norm) % 4 == 0, op.name,
                ": the folded matrix (", fold.rows, ", ", fold.cols, ") at ", fold.first, " and its norm's weight at ",
                fold.gamma, " are not whole vectors of four elements");
        folds.fold[folds.number++] = {
            static_cast<unsigned>(fold.first / 4), static_cast<unsigned>(fold.rows * fold.cols / 4),
            static_cast<unsigned>(fold.cols / 4), static_cast<unsigned>((fold.gamma - op.first_norm) / 4)};
    }
    return folds;
}

template <class Moment>
Launch launch_update(const AdamWArguments& arguments, const Folds& folds) {
    return [=](Stream stream) {
        const auto blocks = static_cast<unsigned>(ceil_div(arguments.vectors, std::int64_t{kThreads}));
        if (arguments.working != nullptr)
            adamw<Moment, true><<<blocks, kThreads, 0, stream>>>(arguments, folds);
        else
            adamw<Moment, false><<<blocks, kThreads, 0, stream>>>(arguments, folds);
        CUDA_CHECK(cudaGetLastError());
    };
}

}  // namespace

template <>
Launch bind(const AdamW& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t count = op.grad.cols;
    require(count % 8 == 0, op.name, ": ", count, " parameters are not a multiple of 8");
    require(op.first + count < std::int64_t{4} << 32, op.name, ": parameters up to number ", op.first + count,
            ", the kernel takes fewer than 2^34");
    AdamWArguments arguments{};
    arguments.grad = reinterpret_cast<const float4*>(operands.get_vectors<float>("grad", op.grad, 1, count));
    arguments.master = reinterpret_cast<float4*>(operands.get_vectors<float>("master", op.master, 1, count));
    const bool rounded = op.m.dtype == DType::bf16;
    if (rounded) {
        arguments.m = operands.get_vectors("m", op.m, 1, count);
        arguments.v = operands.get_vectors("v", op.v, 1, count);
    } else {
        arguments.m = operands.get_vectors<float>("m", op.m, 1, count);
        arguments.v = operands.get_vectors<float>("v", op.v, 1, count);
    }
    if (op.working) arguments.working = reinterpret_cast<uint2*>(operands.get_vectors("working", op.working, 1, count));
    arguments.lr = operands.get<float>("lr", op.lr, 1, 1);
    arguments.correction1 = operands.get<float>("correction1", op.correction1, 1, 1);
    arguments.correction2 = operands.get<float>("correction2", op.correction2, 1, 1);
    arguments.clip = operands.get<float>("clip", op.clip, 1, 1);
    arguments.step = operands.get<std::int32_t>("step", op.step, 1, 1);
    arguments.skip = operands.get<std::int32_t>("skip", op.skip, 1, 1);
    arguments.vectors = count / 4;
    arguments.origin = op.first / 4;
    if (op.norms)
        arguments.norms =
            reinterpret_cast<const float4*>(operands.get_vectors<float>("norms", op.norms, 1, op.norms.cols));
    arguments.beta1 = static_cast<float>(op.beta1);
    arguments.beta2 = static_cast<float>(op.beta2);
    arguments.complement1 = static_cast<float>(1 - op.beta1);
    arguments.complement2 = static_cast<float>(1 - op.beta2);
    arguments.eps = static_cast<float>(op.eps);
    arguments.weight_decay = static_cast<float>(op.weight_decay);
    arguments.seed = op.seed;
    const Folds folds = folds_of(op);
    return rounded ? launch_update<uint2>(arguments, folds) : launch_update<float4>(arguments, folds);
}

template <>
Plan choose(const AdamW& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
