// The softmax of rows whose logits come a block of columns at a time.
#pragma once

#include "kernels/hopper/sm90/math.cuh"
#include "kernels/hopper/sm90/warp.cuh"

namespace coda::hopper {

/// The state of a thread's two rows. Probabilities are relative to a maximum that follows the true one only when they
/// would exceed 2^kSlack, so that earlier results are rarely rescaled after the first blocks (as in FlashAttention-4).
/// They then reach 2^kSlack rather than 1, with the same relative rounding in bf16.
struct OnlineSoftmax {
    static constexpr float kSlack = 8;  // in units of log2
    static constexpr int kChains = 4;   // independent ones, of comparisons: in a single chain each waits for the last

    float maximum[2], sum[2];  // of unscaled logits; the sum is over this thread's columns

    __device__ __forceinline__ void reset() {
        maximum[0] = maximum[1] = -INFINITY;
        sum[0] = sum[1] = 0;
    }
    /// Replaces logits by exp(scale (logit - maximum)). `factor` is what earlier results of the rows are to be
    /// multiplied with; returns whether it differs from 1 for a row of the warp. Calls `between` when the first
    /// kColumns columns are done.
    template <bool kMasked, int kColumns, int kFloats, class Between>
    __device__ __forceinline__ bool update(float (&logits)[kFloats], float scale_log2, float (&factor)[2],
                                           const Between& between) {
        bool follows = false;
        float shift[2], added[2] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float chain[kChains];
#pragma unroll
            for (int j = 0; j < kFloats / 4; ++j) {
                const float pair = fmaxf(logits[4 * j + 2 * half], logits[4 * j + 2 * half + 1]);
                chain[j % kChains] = j < kChains ? pair : fmaxf(chain[j % kChains], pair);
            }
            const float largest = quad_max(fmaxf(fmaxf(chain[0], chain[1]), fmaxf(chain[2], chain[3])));
            const float before = maximum[half];
            const bool grows = (largest - before) * scale_log2 > kSlack;
            if (grows) maximum[half] = largest;
            follows |= grows;
            // A row that has seen no key yet: subtracting 0 instead gives exp(-inf) = 0, not NaN.
            shift[half] = kMasked && maximum[half] == -INFINITY ? 0 : maximum[half] * scale_log2;
            // Exactly 1 where the maximum stays, as O is then not multiplied.
            factor[half] = grows ? exp2_approximate((before - maximum[half]) * scale_log2) : 1;
        }
#pragma unroll
        for (int j = 0; j < kFloats / 4; ++j) {
            if (8 * j == kColumns) between();
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& logit = logits[4 * j + 2 * half + i];
                    logit = exp2_approximate(logit * scale_log2 - shift[half]);
                    added[half] += logit;
                }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) sum[half] = sum[half] * factor[half] + added[half];
        return __any_sync(kAllLanes, follows);
    }
};

}  // namespace coda::hopper
