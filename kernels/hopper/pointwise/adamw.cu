// adamw - the update of every parameter in one launch; nothing is written where skip is not 0
//
//   g = clip grad;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g²
//   master = master (1 - lr decay) - lr (m correction1) / (sqrt(v correction2) + eps);  working = round(master)
//
//   grad, master (n) fp32; m, v (n) both fp32 or both bf16; working (n) bf16, optional; n a multiple of 8. `decay`
//   applies to the first `decayed` elements. bf16 moments are rounded stochastically by rounding_bits (math/random.h),
//   one philox for a thread's four elements.
//
// A thread takes four neighbouring elements: 16 bytes of each fp32 vector and 8 of each bf16 one, so every access of a
// warp is one run of whole lines.
#include <cuda_runtime.h>

#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/pointwise.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/math/random.h"
#include "kernels/tiling.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256;

struct AdamWArguments {
    const float4* grad;
    float4* master;
    void* m;         // float4 or uint2 (four bf16)
    void* v;         // as m
    uint2* working;  // nullptr: absent
    const float* lr;
    const float* correction1;
    const float* correction2;
    const float* clip;
    const std::int32_t* step;
    const std::int32_t* skip;
    std::int64_t vectors, decayed;
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

/// Random bits below an infinity's mantissa would make it a NaN, so what is not finite is only cut off; NaN stays NaN.
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

template <class Moment, bool kWorking>
__global__ __launch_bounds__(kThreads) void adamw(AdamWArguments arguments) {
    const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (at >= arguments.vectors) return;
    auto* const m_at = static_cast<Moment*>(arguments.m) + at;
    auto* const v_at = static_cast<Moment*>(arguments.v) + at;
    const Four grad = load(arguments.grad + at);
    Four master = load(arguments.master + at), m = load(m_at), v = load(v_at);
    const float lr = *arguments.lr, clip = *arguments.clip;
    const float correction1 = *arguments.correction1, correction2 = *arguments.correction2;
    if (*arguments.skip != 0) return;

    const float keep = 1.0f - lr * arguments.weight_decay;
    const std::int64_t first = 4 * at;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float g = clip * grad.value[i];
        m.value[i] = arguments.beta1 * m.value[i] + arguments.complement1 * g;
        v.value[i] = arguments.beta2 * v.value[i] + arguments.complement2 * g * g;
        const float kept = master.value[i] * (first + i < arguments.decayed ? keep : 1.0f);
        master.value[i] = kept - lr * (m.value[i] * correction1) / (sqrtf(v.value[i] * correction2) + arguments.eps);
    }
    store(arguments.master + at, master);
    if constexpr (kWorking)
        __stcs(arguments.working + at,
               uint2{pack(master.value[0], master.value[1]), pack(master.value[2], master.value[3])});
    if constexpr (std::is_same_v<Moment, float4>) {
        store(m_at, m);
        store(v_at, v);
    } else {
        const auto step = static_cast<std::uint64_t>(*arguments.step);
        const Random4 random = philox(arguments.seed, step, static_cast<std::uint64_t>(at));
        store_rounded(m_at, m, random, 0);
        store_rounded(v_at, v, random, 16);
    }
}

template <class Moment>
Launch launch_update(const AdamWArguments& arguments) {
    const auto blocks = static_cast<unsigned>(ceil_div(arguments.vectors, std::int64_t{kThreads}));
    const auto kernel = arguments.working ? adamw<Moment, true> : adamw<Moment, false>;
    return [=](Stream stream) {
        kernel<<<blocks, kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

}  // namespace

Launch prepare_op(const AdamW& op, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t count = op.grad.cols;
    require(op.decayed >= 0 && op.decayed <= count, op.name, ": decayed ", op.decayed, " is outside [0, ", count,
            "], the elements of grad");
    require(count % 8 == 0, op.name, ": ", count, " parameters are not a multiple of 8");
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
    arguments.decayed = op.decayed;
    arguments.beta1 = static_cast<float>(op.beta1);
    arguments.beta2 = static_cast<float>(op.beta2);
    arguments.complement1 = static_cast<float>(1 - op.beta1);
    arguments.complement2 = static_cast<float>(1 - op.beta2);
    arguments.eps = static_cast<float>(op.eps);
    arguments.weight_decay = static_cast<float>(op.weight_decay);
    arguments.seed = op.seed;
    return rounded ? launch_update<uint2>(arguments) : launch_update<float4>(arguments);
}

}  // namespace coda::hopper
